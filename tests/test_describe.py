"""A tensor in words and numbers, whatever it is."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import seismograd as sg
from seismograd.stats import describe as describing
from seismograd.stats.describe import describe


def quietly(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what is experimental
        return make()


def freed():
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


def fake():
    with FakeTensorMode():
        return torch.ones(3)


def inferred():
    with torch.inference_mode():
        return torch.ones(3)


class Named(torch.Tensor):
    """A subclass as users write them."""


class Refusing(torch.Tensor):
    """A subclass that has no op at all."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ in ("isnan", "isfinite", "reshape", "detach"):
            raise NotImplementedError(f"{function.__name__} is not there")
        return super().__torch_function__(function, types, args, kwargs or {})


READABLE = {
    "empty": (lambda: torch.empty(0), None),
    "0-d": (lambda: torch.tensor(3.0), 3.0),
    "bool": (lambda: torch.tensor([True, False]), 0.5),
    "integer": (lambda: torch.tensor([1, 3]), 2.0),
    "uint64": (lambda: torch.tensor([1, 3], dtype=torch.uint64), 2.0),
    "complex": (lambda: torch.tensor([3 + 4j]), 5.0),
    "conjugate": (lambda: torch.tensor([3 + 4j]).conj(), 5.0),
    "negative view": (lambda: torch.tensor([3 + 4j]).conj().imag, -4.0),
    "complex half": (lambda: torch.tensor([3 + 4j], dtype=torch.complex32), 5.0),
    "half": (lambda: torch.full((70_000,), 60_000.0, dtype=torch.half), 60_000.0),
    "bfloat16": (lambda: torch.ones(3, dtype=torch.bfloat16), 1.0),
    "float8": (lambda: torch.ones(3).to(torch.float8_e4m3fn), 1.0),
    "float8 of exponents": (lambda: torch.ones(3).to(torch.float8_e8m0fnu), 1.0),
    "quantised": (lambda: torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.quint8), 1.0),
    "quantised by channel": (
        lambda: torch.quantize_per_channel(
            torch.ones(4, 2), torch.tensor([0.5, 0.25]), torch.tensor([0, 0]), 1, torch.qint8
        ),
        1.0,
    ),
    "coo": (lambda: torch.eye(3).to_sparse(), 1.0),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), 1.0),
    "mkldnn": (lambda: torch.ones(3, 3).to_mkldnn(), 1.0),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), 1.0),
    "jagged": (lambda: torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)], layout=torch.jagged), 1.0),
    "expanded": (lambda: torch.ones(1).expand(100, 100), 1.0),
    "inference": (inferred, 1.0),
    "parameter": (lambda: nn.Parameter(torch.ones(3)), 1.0),
    "subclass": (lambda: torch.ones(3).as_subclass(Named), 1.0),
}


@pytest.mark.parametrize("name", READABLE)
def test_odd_tensors_are_read(name):
    make, mean = READABLE[name]
    info = describe(quietly(make), name)
    assert (info.has_nan, info.has_inf) == (False, False)
    assert info.mean_value == mean
    json.dumps(info.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.empty(3, 4, device="meta"), "no values"),
        (fake, "no values"),
        (freed, "freed"),
        (lambda: torch.ones(2).as_subclass(Refusing), "cannot be read"),
        (lambda: nn.LazyLinear(2).weight, "first forward pass"),
    ],
    ids=["meta", "fake", "freed", "refusing", "lazy"],
)
def test_what_has_no_values_says_so(make, words):
    info = describe(quietly(make), "odd")
    assert words in info.note
    assert info.has_nan is info.mean_value is info.num_nans is None
    assert info.is_finite, "nothing bad was seen"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.half, torch.bfloat16])
def test_statistics_are_those_of_numpy_over_the_finite_values(dtype, monkeypatch):
    monkeypatch.setattr(describing, "_AT_ONCE", 100)
    torch.manual_seed(0)
    tensor = (torch.randn(999) * 7 + 3).to(dtype)
    finite = tensor.double().numpy()
    tensor[5:8] = torch.tensor([math.nan, math.inf, -math.inf], dtype=dtype)
    finite = np.delete(finite, [5, 6, 7])
    info = describe(tensor)
    assert (info.num_nans, info.num_infs, info.numel) == (1, 2, 999)
    assert info.mean_value == pytest.approx(finite.mean())
    assert info.std_value == pytest.approx(finite.std())
    assert info.norm == pytest.approx(np.linalg.norm(finite))
    assert (info.min_value, info.max_value) == (finite.min(), finite.max())


def test_large_values_do_not_overflow():
    info = describe(torch.tensor([1e300, -1e300], dtype=torch.float64))
    assert info.std_value == pytest.approx(1e300)
    assert info.norm == pytest.approx(math.sqrt(2) * 1e300)
    assert describe(torch.zeros(4)).norm == 0.0


def test_bytes_are_those_that_are_held():
    assert describe(torch.ones(1).expand(1000, 1000)).memory_bytes == 4
    assert describe(torch.eye(100).to_sparse()).memory_bytes == 400
    assert describe(torch.ones(3, device="meta")).memory_bytes == 0


def test_nothing_is_drawn_and_nothing_changed():
    tensor = torch.randn(10, requires_grad=True)
    version, state = tensor._version, torch.get_rng_state()
    describe(tensor)
    assert tensor._version == version
    assert torch.equal(torch.get_rng_state(), state)


def test_the_debugger_s_methods_take_odd_tensors():
    debugger = sg.PyTorchDebugger()
    for name, (make, _) in READABLE.items():
        assert debugger.analyze_tensor(quietly(make), name).is_finite


def test_a_dtensor_is_described_by_its_part_here(tmp_path):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        tensor = distribute_tensor(torch.tensor([1.0, math.nan]), mesh, [Shard(0)])
        info = describe(tensor, "sharded")
        assert (info.num_nans, info.mean_value, info.note) == (1, 1.0, "the part on this rank")
        layer = nn.Linear(2, 2)
        layer.weight = nn.Parameter(distribute_tensor(torch.ones(2, 2), mesh, [Shard(0)]))
        layer.weight.grad = distribute_tensor(torch.full((2, 2), 3.0), mesh, [Shard(0)])
        debugger = sg.PyTorchDebugger()
        assert debugger.check_gradients(layer) == pytest.approx(6.0)
        assert debugger.profile_memory_usage(layer)["total"] == 2 * 16 + 8
    finally:
        dist.destroy_process_group()
