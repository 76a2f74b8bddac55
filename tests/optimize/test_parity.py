"""Parity: rounding and chance are let pass, what learns otherwise is not, on models of three kinds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seismograd.optimize.tuning.knobs import Knob, Variant, knobs_for
from seismograd.optimize.tuning.parity import Reference
from seismograd.optimize.tuning.setups import Bench, Setup
from seismograd.optimize.tuning.walks import joined


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(tokens)).mean(1))


def mlp() -> Bench:
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    return bench_of(model, lambda: torch.randn(16, 6), lambda x: (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def cnn() -> Bench:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    return bench_of(model, lambda: torch.randn(8, 3, 8, 8), lambda x: (x.mean((1, 2, 3)) > 0).long())


def transformer() -> Bench:
    return bench_of(Transformer(), lambda: torch.randint(0, 20, (8, 6)), lambda x: x[:, 0] % 3)


def bench_of(model: nn.Module, make: Callable[[], Tensor], label: Callable[[Tensor], Tensor], count: int = 4) -> Bench:
    torch.manual_seed(0)
    for one in model.modules():
        if hasattr(one, "reset_parameters"):
            one.reset_parameters()
    inputs = [make() for _ in range(count)]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return Bench(model, nn.CrossEntropyLoss(), optimizer, [(x, label(x)) for x in inputs])


KINDS = [mlp, cnn, transformer]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def bench(request: pytest.FixtureRequest) -> Bench:
    torch.manual_seed(0)
    made: Bench = request.param()
    return made


def judged(
    reference: Reference, turn: Callable[[Setup], object], dtype: torch.dtype | None = None, *, draws: bool = False
) -> Any:
    setup = reference.bench.setup()
    turn(setup)
    return reference.judge(reference.trace(setup, draws=draws), dtype)


def test_our_knobs_learn_the_same_and_what_is_wrong_is_caught(bench: Bench) -> None:
    reference = Reference(bench, 4)
    assert reference.kind == "float64"
    assert judged(reference, lambda setup: None).verdict == "the same"
    for knob in knobs_for(bench)[0]:
        if not knob.compiles:
            variant = Variant((knob,))
            setup = variant.turned(bench.setup())
            parity = reference.judge(reference.trace(setup, draws=variant.draws), variant.dtype(setup))
            assert parity.ok, (knob.name, parity)

    def scaled(factor: float) -> Callable[[Setup], None]:
        return lambda setup: setup.optimizer.param_groups[0].update(lr=factor * 1e-2)

    assert not judged(reference, scaled(0.0)).ok
    assert not judged(reference, scaled(3.0)).ok
    whole = bench.loss_fn
    assert whole is not None

    def halved(output: Tensor, target: Tensor) -> Tensor:
        return whole(output[: len(output) // 2], target[: len(target) // 2])

    part = judged(reference, lambda setup: setattr(setup, "loss_fn", halved), dtype=torch.bfloat16, draws=True)
    assert not part.ok, "not even where much is allowed"


@pytest.mark.thorough
def test_what_is_compiled_learns_the_same(bench: Bench) -> None:
    reference = Reference(bench, 4)
    for knob in knobs_for(bench)[0]:
        if knob.compiles:
            variant = Variant((knob,))
            setup = variant.turned(bench.setup())
            parity = reference.judge(reference.trace(setup, draws=variant.draws), variant.dtype(setup))
            assert parity.ok, (knob.name, parity)


def test_a_model_without_float64_is_compared_with_itself() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(torch.ones(len(x), 6, dtype=torch.float32) * x.float())

    bench = bench_of(Fixed(), lambda: torch.randn(8, 6), lambda x: (x[:, 0] > 0).long())
    reference = Reference(bench, 4)
    assert reference.kind == "the baseline"
    assert judged(reference, lambda setup: None).verdict == "the same"
    assert judged(reference, lambda setup: setattr(setup, "autocast", torch.bfloat16), dtype=torch.bfloat16).ok


def test_other_random_numbers_are_within_the_seeds_spread() -> None:
    bench = mlp()
    reference = Reference(bench, 4)

    def other_masks(setup: Setup) -> None:
        setup.model[2] = nn.Sequential(Drawn(), nn.Dropout(0.2))

    class Drawn(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.rand(1)
            return x

    strict, loose = judged(reference, other_masks), judged(reference, other_masks, draws=True)
    assert not strict.ok
    assert loose.ok
    assert loose.verdict == "within the seeds' spread"


def test_a_loss_that_is_not_finite_is_not_the_same() -> None:
    bench = cnn()
    reference = Reference(bench, 4)

    def poisoned(setup: Setup) -> None:
        setup.loss_fn = lambda output, target: nn.functional.cross_entropy(output, target) * math.nan

    parity = judged(reference, poisoned)
    assert not parity.ok
    assert parity.loss == math.inf


def test_one_batch_has_seeds_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    bench = bench_of(model, lambda: torch.randn(32, 6), lambda x: (x[:, 0] > 0).long(), count=1)
    reference = Reference(bench, 4)
    assert reference.width == 1
    assert reference.noise.weights > 0.05, "other samples of the batch"
    assert judged(reference, lambda setup: setattr(setup, "autocast", torch.bfloat16), dtype=torch.bfloat16).ok
    assert not judged(reference, lambda setup: setup.optimizer.param_groups[0].update(lr=0.0)).ok


def test_batches_are_joined_whatever_they_are_made_of() -> None:
    one = {"x": torch.ones(2, 3), "more": [torch.zeros(2)], "name": "a"}
    two = {"x": torch.zeros(4, 3), "more": [torch.ones(4)], "name": "b"}
    both = joined([one, two])
    assert (both["x"].shape, both["more"][0].tolist(), both["name"]) == ((6, 3), [0, 0, 1, 1, 1, 1], "a")


def test_a_variant_with_other_shapes_is_not_comparable() -> None:
    reference = Reference(mlp(), 4)

    def wider(setup: Setup) -> None:
        setup.model = setup.trained = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
        setup.optimizer = torch.optim.SGD(setup.model.parameters(), lr=0.1)

    parity = judged(reference, wider)
    assert not parity.ok
    assert math.isinf(parity.weights)
    assert math.isinf(parity.gradients)


def test_knobs_are_told_apart_by_themselves() -> None:
    knob = Knob("a", "b", lambda setup: None)
    assert {knob: 1}[knob] == 1


def skips_every_fourth(setup: Setup) -> None:
    step, taken = setup.optimizer.step, list[int]()

    def sometimes(*args: Any) -> Any:
        taken.append(1)
        return step(*args) if len(taken) % 4 else None

    setup.optimizer.step = sometimes  # type: ignore[method-assign]


def times(factor: float, name: str) -> Callable[[Setup], None]:
    def turn(setup: Setup) -> None:
        setup.optimizer.param_groups[0][name] *= factor

    return turn


@pytest.mark.parametrize("lr", [0.1, 0.5])
@pytest.mark.parametrize(
    "broken", [skips_every_fourth, times(0.5, "lr"), times(0.9, "lr"), times(0.9, "momentum")], ids=range(4)
)
def test_where_the_seeds_lie_far_apart_a_wrong_step_is_still_seen(lr: float, broken: Callable[[Setup], None]) -> None:
    """Dropout, small batches and a high rate make any short loss curve a possible one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    inputs = [torch.randn(8, 6) for _ in range(6)]
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    batches = [(x, (x[:, 0] > 0).long()) for x in inputs]
    reference = Reference(Bench(model, nn.CrossEntropyLoss(), optimizer, batches), 6)
    found = judged(reference, broken)
    assert not found.ok
    assert found.verdict.startswith("steps off by")
    assert found.loss <= found.allowed["loss"] or found.weights <= found.allowed["weights"], "the seeds allow it"
    assert judged(reference, lambda _setup: None).ok
