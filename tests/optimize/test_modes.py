"""A model in each mode: the same weights, the same answer, and what it was stays as it was."""

from __future__ import annotations

import copy
import inspect
import io
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from seismograd.optimize.autocasting import narrow_dtype, scaler_for
from seismograd.optimize.models import Optimized, optimized
from seismograd.optimize.modes import OptimizationMode


class Residual(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm, self.dropout = nn.BatchNorm2d(width), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.second(F.relu(self.norm(self.first(x)))))


def mlp() -> nn.Module:
    layers = [nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 8)) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(8, 2))


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), *[Residual() for _ in range(4)], nn.Flatten(), nn.Linear(144, 2))


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Flatten(), nn.Linear(40, 2))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (6, 8)),
    "cnn": (cnn, (6, 3, 8, 8)),
    "transformer": (transformer, (4, 5, 8)),
}


@pytest.fixture(params=MODELS)
def pair(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    build, shape = MODELS[request.param]
    return build(), torch.randn(shape)


def steps(model: nn.Module, x: Tensor, times: int = 3) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """The outputs of a short training, the state afterwards, and that of the generator."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(1)
    outputs = []
    for _ in range(times):
        optimizer.zero_grad()
        output = model(x)
        output.float().square().mean().backward()
        optimizer.step()
        outputs.append(output.detach())
    return outputs, [one.clone() for one in model.state_dict().values()], torch.get_rng_state()


def test_checkpointed_training_is_bit_identical(pair: tuple[nn.Module, Tensor]) -> None:
    model, x = pair
    lean = optimized(copy.deepcopy(model), "memory_efficient")
    assert isinstance(lean, Optimized)
    assert len(lean.optimization.checkpointed) >= 3
    (outputs, state, generator), (lean_outputs, lean_state, lean_generator) = steps(model, x), steps(lean, x)
    assert all(map(torch.equal, outputs, lean_outputs))
    assert all(map(torch.equal, state, lean_state)), "buffers of batch norm are counted once"
    assert torch.equal(generator, lean_generator)


def test_autocast_is_close_and_narrow(pair: tuple[nn.Module, Tensor]) -> None:
    model, x = pair
    fast = optimized(copy.deepcopy(model), "amp")
    (outputs, state, _), (fast_outputs, fast_state, _) = steps(model, x, 1), steps(fast, x, 1)
    assert fast_outputs[0].dtype is torch.bfloat16
    assert torch.allclose(fast_outputs[0].float(), outputs[0], atol=0.1)
    assert all(
        torch.allclose(one.float(), other.float(), atol=0.05) for one, other in zip(state, fast_state, strict=True)
    )
    assert all(parameter.dtype is torch.float32 for parameter in fast.parameters())


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ["compilation", "full_optimization"])
def test_compiled_is_close(pair: tuple[nn.Module, Tensor], mode: str) -> None:
    model, x = pair
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    torch.compiler.reset()
    fast = optimized(copy.deepcopy(model), mode, compile_options={"backend": "aot_eager"})
    assert isinstance(fast, Optimized)
    (outputs, state, _), (fast_outputs, fast_state, _) = steps(model, x, 2), steps(fast, x, 2)
    near = 1e-4 if mode == "compilation" else 0.1
    assert torch.allclose(fast_outputs[-1].float(), outputs[-1], atol=near)
    assert all(
        torch.allclose(one.float(), other.float(), atol=near) for one, other in zip(state, fast_state, strict=True)
    )
    told = fast.optimization
    assert told.compiled
    assert told.graph_breaks == 0, told.notes
    assert not told.notes
    assert bool(told.checkpointed) == (mode == "full_optimization")


def attributes(model: nn.Module) -> dict[str, dict[str, object]]:
    """Of all modules, without the one that `torch.compile` leaves on a model."""
    return {
        name: {key: value for key, value in vars(module).items() if key != "_is_torch_compile"}
        for name, module in model.named_modules()
    }


@pytest.mark.parametrize("mode", [mode.value for mode in OptimizationMode if mode is not OptimizationMode.NONE])
def test_it_is_another_face_of_the_same_model(mode: str) -> None:
    model = cnn()
    before = attributes(model)
    fast = optimized(model, mode)
    assert fast is not model
    assert list(fast.state_dict()) == list(model.state_dict())
    assert all(one is other for one, other in zip(fast.parameters(), model.parameters(), strict=True))
    assert [name for name, _ in fast.named_modules()] == [name for name, _ in model.named_modules()]
    assert fast.eval() is fast
    assert not model.training
    assert not model[1].norm.training
    model.train()
    assert fast.training
    fast.to(torch.float64)
    assert model[1].norm.running_mean.dtype is next(model.parameters()).dtype is torch.float64
    fast.load_state_dict({name: torch.zeros_like(one) for name, one in model.state_dict().items()})
    assert not any(parameter.any() for parameter in model.parameters())
    vars(model).pop("_compile_kwargs", None)  # Lightning notes it there, if another test has imported it
    assert attributes(model) == before
    assert inspect.signature(fast.forward) == inspect.signature(model.forward)
    model[1].scale = 3
    assert fast.get_submodule("1").scale == 3
    fast.note = "a note"
    assert model.note == "a note"
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        fast.nothing_of_the_kind


def test_a_copy_and_a_file_are_optimised_alike() -> None:
    model = mlp()
    lean = optimized(model, "memory_efficient")
    again = copy.deepcopy(lean)
    assert isinstance(again, Optimized)
    assert again.original is not model
    assert again.optimization.checkpointed == lean.optimization.checkpointed
    file = io.BytesIO()
    torch.save(lean, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    x = torch.randn(3, 8)
    assert torch.equal(loaded.eval()(x), lean.eval()(x))
    inside = nn.ModuleDict({"net": lean})
    assert list(inside.state_dict()) == [f"net.{name}" for name in model.state_dict()]
    inside.load_state_dict(inside.state_dict())


def test_none_is_the_model_and_an_optimised_one_is_optimised_anew() -> None:
    model = mlp()
    assert optimized(model, sg.OptimizationMode.NONE) is model
    assert optimized(optimized(model, "amp"), "none") is model
    lean = optimized(model, "MEMORY_EFFICIENT")
    other = optimized(lean, "amp")
    assert isinstance(other, Optimized)
    assert other.original is model


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match="'fast' is unknown: use one of 'none', 'amp'"):
        optimized(mlp(), "fast")
    with pytest.raises(TypeError, match="model is a str, not"):
        optimized("model", "amp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"torch.float32 is none that autocast computes in"):
        optimized(mlp(), "amp", dtype=torch.float32)
    with pytest.raises(ValueError, match="mode amp does not"):
        optimized(mlp(), "amp", scripted=True)
    with pytest.raises(ValueError, match="leave scripted=True out"):
        optimized(mlp(), "compilation", scripted=True, compile_options={"mode": "default"})
    with pytest.raises(TypeError, match="compile_options"):
        optimized(mlp(), "compilation", compile_options={"no_such_option": 1})


def test_hooks_are_called_as_before() -> None:
    model, calls = mlp(), []
    lean = optimized(model, "memory_efficient")
    model.register_forward_hook(lambda *_: calls.append("model"))
    model[0].register_forward_hook(lambda *_: calls.append("block"))
    lean.register_forward_pre_hook(lambda *_: calls.append("lean"))
    model[1][0].register_full_backward_hook(lambda *_: calls.append("backward"))
    lean(torch.randn(3, 8)).sum().backward()
    assert calls == ["lean", "block", "model", "backward"]


def test_tied_weights_have_the_same_gradient() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(11, 8)
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(4))
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.embedding.weight
            self.blocks[3][0].weight = self.blocks[0][0].weight

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embedding(tokens)
            for block in self.blocks:
                x = x + block(x)
            return self.head(x)

    model, tokens = Tied(), torch.randint(0, 11, (4, 5))
    lean = optimized(copy.deepcopy(model), "memory_efficient")
    for each in (model, lean):
        each(tokens).logsumexp(-1).sum().backward()
    pairs = list(zip(model.parameters(), lean.parameters(), strict=True))
    assert all(torch.equal(one.grad, other.grad) for one, other in pairs if one.grad is not None)
    assert lean.original.head.weight is lean.original.embedding.weight


class Capricious(nn.Module):
    """A block that draws from every generator there is, counts its calls, and keeps a running value by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.register_buffer("seen", torch.zeros(()))
        self.calls, self.history, self.generator = 0, [], torch.Generator().manual_seed(3)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        self.calls += 1
        self.history.append(self.calls)
        self.seen += x.detach().abs().mean()
        noise = torch.randn(x.shape, generator=self.generator)
        kept = random.random() + float(np.random.rand())
        return x + F.gelu(self.linear(x * kept + noise)) * self.seen.clone() * scale


class Moody(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Capricious() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, scale=0.5)
        return x


def test_whatever_a_block_changes_is_changed_once() -> None:
    torch.manual_seed(0)
    model, x = Moody(), torch.randn(5, 8)
    lean = optimized(copy.deepcopy(model), "memory_efficient")
    assert lean.optimization.checkpointed == ("blocks.0", "blocks.1", "blocks.2")
    ends = []
    for each in (model, lean):
        random.seed(0), np.random.seed(0)
        for _ in range(2):
            each(x).sum().backward(retain_graph=True)
        ends.append((random.random(), np.random.rand()))
    assert ends[0] == ends[1]
    for one, other in zip(model.parameters(), lean.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    assert all(map(torch.equal, model.buffers(), lean.buffers()))
    for one, other in zip(model.blocks, lean.blocks, strict=True):
        assert (one.calls, one.history) == (other.calls, other.history) == (2, [1, 2])
        assert torch.equal(one.generator.get_state(), other.generator.get_state())


def test_backward_twice_and_evaluation_between() -> None:
    torch.manual_seed(0)
    model = cnn()
    lean = optimized(copy.deepcopy(model), "memory_efficient")
    x = torch.randn(4, 3, 8, 8)
    for each in (model, lean):
        torch.manual_seed(2)
        loss = each(x).sum()
        loss.backward(retain_graph=True)
        each.eval()
        loss.backward()
    assert all(
        torch.equal(one.grad, other.grad) for one, other in zip(model.parameters(), lean.parameters(), strict=True)
    )
    assert all(map(torch.equal, model.buffers(), lean.buffers()))
    assert not any(module.training for module in lean.modules())


def test_nothing_is_computed_again_without_a_backward() -> None:
    model = mlp()
    lean = optimized(model, "memory_efficient")
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        lean.eval()(torch.randn(3, 8))
        in_evaluation = len(kept)
        model(torch.randn(3, 8))
    assert in_evaluation == len(kept) - in_evaluation
    with torch.no_grad():
        assert not lean.train()(torch.randn(3, 8)).requires_grad


def test_an_error_inside_leaves_the_model_as_it_was() -> None:
    model = mlp()
    lean = optimized(model, "memory_efficient")
    with pytest.raises(RuntimeError, match="shape"):
        lean(torch.randn(3, 9))
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_which_dtype_and_which_scaler() -> None:
    model, cpu = mlp(), torch.device("cpu")
    assert narrow_dtype(cpu) is torch.bfloat16
    assert scaler_for(model, "amp") is None
    assert scaler_for(model, "compilation", torch.float16) is None
    scaler = scaler_for(model, "full_optimization", torch.float16)
    assert scaler is not None
    assert scaler.is_enabled()


def test_a_gpu_without_bfloat16_computes_in_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert narrow_dtype(torch.device("cuda")) is torch.float16


def test_a_watched_training_of_it_is_sound(pair: tuple[nn.Module, Tensor]) -> None:
    model, x = pair
    lean = optimized(model, "memory_efficient")
    optimizer = torch.optim.SGD(lean.parameters(), lr=0.01)
    with sg.watch(lean, optimizer, strict=True, sinks=[]) as watch:
        for _ in range(5):
            optimizer.zero_grad()
            lean(x).square().mean().backward()
            optimizer.step()
    assert watch.report()["run"]["steps"] == 5
    assert not [one for one in watch.findings if one.severity is sg.Severity.CRITICAL]


def test_a_watched_training_of_compiled_code() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(6, 4)
    fast = optimized(model, "compilation", compile_options={"backend": "aot_eager"})
    optimizer = torch.optim.SGD(fast.parameters(), lr=0.01)
    with sg.watch(fast, optimizer, strict=True, sinks=[]) as watch:
        for _ in range(5):
            optimizer.zero_grad()
            fast(x).square().mean().backward()
            optimizer.step()
    assert watch.report()["run"]["steps"] == 5
    assert fast.optimization.compiled
    assert fast.optimization.graph_breaks == 0, fast.optimization.notes


def test_threads_may_share_it() -> None:
    torch.manual_seed(0)
    model, x = mlp().train(), torch.randn(4, 8)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    lean = optimized(model, "memory_efficient")
    expected = model(x)
    with ThreadPoolExecutor(4) as pool:
        outputs = list(pool.map(lambda at: (lean if at % 2 else model)(x), range(40)))
    assert all(torch.equal(output, expected) for output in outputs)
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_where_there_is_no_autocast_it_is_said() -> None:
    fast = optimized(nn.Linear(3, 2, device="meta"), "amp")
    assert fast(torch.randn(4, 3, device="meta")).dtype is torch.float32
    assert not fast.optimization.amp_enabled
    assert "no autocast on meta" in fast.optimization.notes[0]
