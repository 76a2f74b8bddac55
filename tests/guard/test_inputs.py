"""What `validate_model_input` refuses, and where it says that is; odd tensors do not trouble it."""

from __future__ import annotations

import math
import warnings
from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import seismograd as sg


def holed(value: float, *, at: tuple[int, int] = (2, 5), dtype: torch.dtype = torch.float32) -> Tensor:
    data = torch.zeros(4, 8)
    data[at] = value
    return data.to(dtype)


def refusal(data: Any, **limits: Any) -> str:
    with pytest.raises(ValueError, match="Input") as caught:
        sg.validate_model_input(data, **limits)
    return str(caught.value)


def test_what_is_fine() -> None:
    assert sg.validate_model_input(torch.randn(4, 8)) is True
    assert sg.validate_model_input(np.ones((4, 8))) is True
    assert sg.validate_model_input([[1.0, 2.0], [3.0, 4.0]]) is True


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "contains NaN values: 1 of 32 (at [2, 5]: NaN); look for a division by zero"),
        (math.inf, "contains infinite values: 1 of 32 (at [2, 5]: Inf)"),
        (-math.inf, "contains infinite values: 1 of 32 (at [2, 5]: -Inf)"),
        (-5000.0, "values are too large: 1 of 32 (at [2, 5]: -5e+03), beyond 1e+03; normalise them"),
    ],
)
def test_a_bad_value_with_its_place(value: float, words: str) -> None:
    assert words in refusal(holed(value))
    assert words in refusal(holed(value).numpy())


def test_many_bad_values() -> None:
    assert "20 of 20 (first at [0, 0]: NaN, [0, 1]: NaN, [0, 2]: NaN)" in refusal(torch.full((4, 5), math.nan))


def test_everything_that_is_wrong_is_said_at_once() -> None:
    data = torch.zeros(2, 2, 2)
    data[0, 0, 0], data[1, 1, 1] = math.nan, 1e9
    text = refusal(data)
    assert len(text.splitlines()) == 3
    assert "must be 2-dimensional and has 3 dimensions (its shape is 2x2x2)" in text
    assert "pass dimensions=3" in text


def test_limits_can_be_set() -> None:
    assert sg.validate_model_input(torch.full((2, 2), 5000.0), max_abs=5000.0)
    assert sg.validate_model_input(torch.full((2, 2), 1e30), max_abs=None)
    assert sg.validate_model_input(holed(math.nan), allow_nonfinite=True)
    assert "too large" in refusal(torch.tensor([[math.nan, 2e3]]), allow_nonfinite=True)
    assert sg.validate_model_input(torch.zeros(2, 3, 4), dimensions=3)
    assert sg.validate_model_input(torch.zeros(2, 3, 4), dimensions=(2, 3))
    assert sg.validate_model_input(torch.zeros(2, 3, 4), dimensions=None)
    assert "2 or 4-dimensional" in refusal(torch.zeros(2, 3, 4), dimensions=(2, 4))


def test_a_shape_with_open_sizes() -> None:
    image = torch.zeros(7, 3, 32, 32)
    assert sg.validate_model_input(image, shape=(None, 3, -1, 32))
    assert "must have the shape ?x1x32x32 and has 7x3x32x32" in refusal(image, shape=(None, 1, 32, 32))
    assert "with 2 dimensions and has 7x3x32x32" in refusal(image, shape=(None, 8))


def test_a_dtype() -> None:
    assert sg.validate_model_input(torch.zeros(2, 2), dtype=torch.float32)
    assert sg.validate_model_input(torch.zeros(2, 2), dtype=["float16", "float32"])
    text = refusal(torch.zeros(2, 2), dtype=torch.float16)
    assert "must have the dtype float16 and has float32: convert it with .to(torch.float16)" in text


def test_a_range() -> None:
    assert sg.validate_model_input(torch.tensor([[0.0, 1.0]]), expected_range=(0, 1))
    text = refusal(torch.tensor([[0.0, 1.5, -0.5]]), expected_range=(0, 1))
    assert "outside the expected range 0 to 1: 2 of 3 (at [0, 1]: 1.5, [0, 2]: -0.5)" in text
    assert "outside" in refusal(torch.tensor([[0, 300]]), expected_range=(0, 255))


@dataclass
class Batch:
    image: Tensor
    labels: Tensor


Pair = namedtuple("Pair", ["x", "y"])


@pytest.mark.parametrize(
    ("wrap", "place"),
    [
        (lambda bad: {"image": bad, "label": torch.tensor([30_522])}, "Input['image'] "),
        (lambda bad: (torch.zeros(4, 8), bad), "Input[1] "),
        (lambda bad: [{"a": {"b": (bad,)}}], "Input[0]['a']['b'][0] "),
        (lambda bad: Batch(bad, torch.zeros(4, dtype=torch.long)), "Input.image "),
        (lambda bad: Pair(torch.zeros(1, 1), bad), "Input.y "),
        (lambda bad: UserDict(image=bad, name="a word", nothing=None), "Input['image'] "),
        (lambda bad: {"image": bad.numpy(), "weight": 0.5}, "Input['image'] "),
    ],
)
def test_batches_name_the_key(wrap: Callable[[Tensor], Any], place: str) -> None:
    assert refusal(wrap(holed(math.nan))).startswith(place)
    assert sg.validate_model_input(wrap(holed(1.0)))


def test_a_number_that_is_not_finite_in_a_batch() -> None:
    assert refusal({"x": torch.zeros(2, 2), "temperature": math.inf}).startswith(
        "Input['temperature'] contains infinite"
    )


def test_labels_and_ids_have_no_size() -> None:
    assert sg.validate_model_input(torch.tensor([[101, 30_522]]))
    assert sg.validate_model_input({"x": torch.zeros(2, 2), "ids": torch.tensor([50_000])}, expected_range=(0, 1))


@pytest.mark.parametrize("data", [None, "words", {}, [], object(), np.array(["a"]), {"a": "b"}])
def test_what_holds_nothing_to_check(data: Any) -> None:
    assert "holds no tensor to check" in refusal(data)


def without_memory() -> Tensor:
    tensor = torch.ones(4, 8)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.fixture
def distributed() -> Iterator[Callable[[Tensor], Tensor]]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1,))
    yield lambda values: DTensor.from_local(values, mesh, [Replicate()])
    dist.destroy_process_group()


def sparse(places: list[list[int]], values: list[float], size: int) -> Tensor:
    return torch.sparse_coo_tensor(torch.tensor(places), torch.tensor(values), (size, size), check_invariants=True)


ODD: dict[str, Callable[[], Tensor]] = {
    "empty": lambda: torch.empty(0, 8),
    "bool": lambda: torch.ones(4, 8, dtype=torch.bool),
    "uint8": lambda: torch.full((4, 8), 255, dtype=torch.uint8),
    "uint16": lambda: torch.ones(4, 8).to(torch.uint16),
    "int64": lambda: torch.ones(4, 8, dtype=torch.int64),
    "complex": lambda: torch.ones(4, 8, dtype=torch.complex64),
    "conjugated": lambda: torch.ones(4, 8, dtype=torch.complex64).conj(),
    "half": lambda: torch.ones(4, 8).half(),
    "bfloat16": lambda: torch.ones(4, 8).bfloat16(),
    "float8": lambda: torch.ones(4, 8).to(torch.float8_e4m3fn),
    "sparse": lambda: torch.eye(4).to_sparse(),
    "huge sparse": lambda: sparse([[1], [2]], [1.0], 10**7),
    "meta": lambda: torch.ones(4, 8, device="meta"),
    "expanded": lambda: torch.ones(1, 8).expand(4, 8),
    "with a graph": lambda: torch.ones(4, 8, requires_grad=True) * 2,
    "parameter": lambda: torch.nn.Parameter(torch.ones(4, 8)),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_tensors_are_fine(kind: str) -> None:
    assert sg.validate_model_input(ODD[kind]()) is True


def test_more_odd_tensors(distributed: Callable[[Tensor], Tensor]) -> None:
    assert "must be 2-dimensional and has 0 dimensions" in refusal(torch.tensor(1.0))
    assert refusal(torch.tensor(math.nan), dimensions=0) == (
        "Input contains NaN values: NaN; look for a division by zero, the log or root of a negative number, or a"
        " missing value"
    )
    assert "and no memory: it was freed" in refusal(without_memory())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of the kinds themselves
        assert sg.validate_model_input(torch.quantize_per_tensor(torch.ones(4, 8), 0.1, 0, torch.qint8))
        assert sg.validate_model_input(torch.eye(4).to_sparse_csr())
        nested = torch.nested.nested_tensor([torch.ones(2), torch.tensor([1.0, math.nan, 1.0])])
        assert "NaN values: 1 of 5" in refusal(nested)
        assert sg.validate_model_input(distributed(torch.ones(4, 8)))
        assert "NaN" in refusal(distributed(holed(math.nan)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.float8_e5m2])
@pytest.mark.parametrize(("value", "word"), [(math.nan, "NaN"), (math.inf, "infinite")])
def test_bad_values_in_odd_dtypes(dtype: torch.dtype, value: float, word: str) -> None:
    assert f"{word} values: 1 of 32 (at [2, 5]" in refusal(holed(value, dtype=dtype))


def test_a_bad_value_in_a_sparse_tensor_has_its_place() -> None:
    assert "at [70, 5]: NaN" in refusal(sparse([[1, 70], [2, 5]], [1.0, math.nan], 100))


def test_arrays_that_torch_does_not_take() -> None:
    frozen = np.ones((2, 2))
    frozen.flags.writeable = False
    assert sg.validate_model_input(frozen)
    assert sg.validate_model_input(np.ones((4, 4))[::-1, ::-2])
    assert sg.validate_model_input(np.ones((2, 2), ">f4"))
    assert sg.validate_model_input(np.ones((2, 2), np.longdouble))
    assert sg.validate_model_input(np.ones((2, 2), np.uint16))


def test_nothing_is_changed() -> None:
    data = torch.randn(4, 8, requires_grad=True)
    version, before = data._version, data.detach().clone()
    sg.validate_model_input(data)
    assert data._version == version
    assert torch.equal(data, before)
    assert data.grad is None
