"""The promises of the watch: bit-identical, never in the way, bounded, one sync, gone when it leaves."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import threading
import tracemalloc
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, permutations
from typing import Any, ClassVar

import numpy as np
import pytest
import rich.console
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import seismograd as sg
from seismograd import loop, patches, reader
from seismograd.detectors import DEFAULT
from seismograd.probes.gradients import Gradients
from seismograd.probes.learning_rates import LearningRates
from seismograd.probes.memory import Memory as ProcessMemory
from seismograd.probes.pack import Fetch
from seismograd.probes.parameters import Parameters, Updates
from seismograd.probes.timing import Timing
from seismograd.records import Finding, Reading, Severity
from seismograd.sinks import Callback, Console, Logging, Memory

LEVELS = ("basic", "advanced", "extreme")
STEPS = 200


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# -- the loops -----------------------------------------------------------------------------------------------------


@dataclass
class Training:
    """A model in training: `step` does one optimizer step on data that it draws from torch's generator."""

    model: nn.Module
    optimizer: Optimizer
    step: Callable[[], None]
    scaler: Any = None


def _training(
    model: nn.Module,
    optimizer: Optimizer,
    batch: Callable[[], Tensor],
    *,
    autocast: bool = False,
    accumulate: int = 1,
    scaler: Any = None,
) -> Training:
    def loss() -> Tensor:
        x = batch()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return cross_entropy(model(x), torch.randint(0, 3, (len(x),))) / accumulate

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(accumulate):
            (scaler.scale(loss()) if scaler else loss()).backward()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
            return
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return Training(model, optimizer, step, scaler)


def _mlp(dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def _vectors() -> Tensor:
    return torch.randn(4, 6)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(tokens)).mean(1))


def mlp_with_dropout() -> Training:
    model = _mlp(0.3)
    return _training(model, Adam(model.parameters(), lr=1e-2), _vectors)


def cnn_with_batch_norm() -> Training:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))
    return _training(model, SGD(model.parameters(), lr=1e-2), lambda: torch.randn(4, 1, 4, 4))


def transformer_with_adamw() -> Training:
    model = Transformer()
    return _training(model, AdamW(model.parameters(), lr=1e-3), lambda: torch.randint(0, 11, (3, 5)))


def amp_bf16() -> Training:
    model = _mlp()
    return _training(model, AdamW(model.parameters(), lr=1e-2), _vectors, autocast=True)


def loss_scaled() -> Training:
    model = _mlp()
    scaler = GradScaler("cpu", init_scale=2.0**8, growth_interval=20)
    return _training(model, SGD(model.parameters(), lr=1e-2), _vectors, scaler=scaler)


def accumulation() -> Training:
    model = _mlp(0.1)
    return _training(model, AdamW(model.parameters(), lr=1e-2), _vectors, accumulate=3)


def momentum_sgd() -> Training:
    model = _mlp(0.1)
    return _training(model, SGD(model.parameters(), lr=1e-2, momentum=0.9, weight_decay=1e-3, nesterov=True), _vectors)


def lbfgs() -> Training:
    model, x = _mlp(), _vectors()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), torch.arange(4) % 3)
        loss.backward()
        return loss

    return Training(model, optimizer, lambda: optimizer.step(closure))


LOOPS = (
    mlp_with_dropout,
    cnn_with_batch_norm,
    transformer_with_adamw,
    amp_bf16,
    loss_scaled,
    accumulation,
    momentum_sgd,
    lbfgs,
)


def _bytes(value: Any) -> Any:
    """`value` with every tensor as its exact bytes."""
    if isinstance(value, Tensor):
        return (
            value.dtype,
            tuple(value.shape),
            value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(),
        )
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return {key: _bytes(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_bytes(item) for item in value]
    return value


def _state(training: Training) -> dict[str, Any]:
    model = training.model
    return _bytes(
        {
            "model": dict(model.state_dict()),
            "gradients": [p.grad for p in model.parameters()],
            "optimizer": training.optimizer.state_dict(),
            "scaler": training.scaler.state_dict() if training.scaler else None,
            "torch": torch.get_rng_state(),
            "python": random.getstate(),
            "numpy": np.random.get_state(),
        }
    )


def _seeded(build: Callable[[], Training]) -> Training:
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    return build()


@cache
def unwatched(build: Callable[[], Training], steps: int = STEPS) -> dict[str, Any]:
    training = _seeded(build)
    for _ in range(steps):
        training.step()
    return _state(training)


def watched(build: Callable[[], Training], steps: int = STEPS, **options: Any) -> dict[str, Any]:
    training = _seeded(build)
    with sg.watch(training.model, training.optimizer, **{"sinks": [], **options}):
        for _ in range(steps):
            training.step()
    return _state(training)


# -- bit-identical -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("build", LOOPS, ids=lambda build: build.__name__)
def test_a_watched_run_is_bit_identical(build: Callable[[], Training], level: str) -> None:
    """With warnings as errors and `strict`, so this also says: no warning, no hidden error on a healthy run."""
    memory = Memory()
    assert watched(build, level=level, strict=True, sinks=[memory]) == unwatched(build)
    steps = [reading.step for reading in memory.readings if not reading.facts]
    assert steps == list(range(STEPS))  # it did look, at every step
    if level != "basic":
        assert sum("parameter" in reading.tensors for reading in memory.readings) > 5


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("level", LEVELS)
def test_a_lag_changes_nothing(level: str, lag: int) -> None:
    memory = Memory()
    assert watched(mlp_with_dropout, level=level, lag=lag, strict=True, sinks=[memory]) == unwatched(mlp_with_dropout)
    assert sum(not reading.facts for reading in memory.readings) == STEPS


def test_changing_the_level_while_it_runs_changes_nothing() -> None:
    training = _seeded(mlp_with_dropout)
    with sg.watch(training.model, training.optimizer, sinks=[], strict=True) as watch:
        for at in range(STEPS):
            watch.level = LEVELS[at % 3]
            training.step()
    assert _state(training) == unwatched(mlp_with_dropout)


def test_the_comparison_sees_a_single_drawn_number() -> None:
    training = _seeded(mlp_with_dropout)
    for _ in range(STEPS):
        training.step()
    torch.rand(1)
    assert _state(training) != unwatched(mlp_with_dropout)


# -- never in the way ----------------------------------------------------------------------------------------------


class BrokenError(Exception):
    """What the tests inject."""


def _break(*_: Any, **__: Any) -> Any:
    raise BrokenError("on purpose")


class Alarm:
    """A detector that fires at every reading, so that every method of a sink is called."""

    id: ClassVar[str] = "alarm"
    needs: ClassVar[tuple[str, ...]] = ("loss",)
    follows: ClassVar[tuple[str, ...]] = ()

    def start(self) -> Alarm:
        return self

    def check(self, reading: Reading) -> Finding | None:
        return Finding("alarm", Severity.WARNING, reading.step, "it rings")


SHORT = 40
PROBES = [
    (Gradients, "read"),
    (Gradients, "read_more"),
    (Parameters, "read"),
    (Updates, "before"),
    (Updates, "after"),
    (Updates, "read"),
    (LearningRates, "read"),
    (Timing, "read"),
    (ProcessMemory, "read"),
]
SINK_METHODS = ("write_reading", "write_finding", "update_finding", "close")
SINKS: dict[str, Callable[[], Any]] = {
    "Callback": lambda: Callback(lambda finding: None),
    "Console": lambda: Console(rich.console.Console(file=io.StringIO())),
    "Logging": Logging,
    "Memory": Memory,
}


def _numeric(memory: Memory) -> list[sg.Reading]:
    """Those that are not of facts."""
    return [reading for reading in memory.readings if not reading.facts]


def _broken_run(**options: Any) -> tuple[list[str], dict[str, Any], Memory]:
    """Runs a loop with something broken inside; what was warned, the report, and what still arrived."""
    memory = Memory()
    options = {"level": "extreme", "detectors": [Alarm()], **options, "sinks": [*options.get("sinks", ()), memory]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert watched(mlp_with_dropout, SHORT, **options) == unwatched(mlp_with_dropout, SHORT)
    assert memory.report is not None
    return [str(warning.message) for warning in caught], memory.report, memory


def _assert_told_once(said: list[str], report: dict[str, Any], part: str) -> None:
    assert len(said) == 1, said
    assert part in said[0]
    assert "on purpose" in said[0]
    assert [f["evidence"]["part"] for f in report["findings"] if f["id"] == "blind-probe"] == [part]
    assert [event["event_type"] for event in report["events"]] == ["blind_probe"]


@pytest.mark.parametrize(("probe", "method"), PROBES, ids=lambda part: getattr(part, "__name__", part))
def test_a_broken_probe_is_dropped_and_the_rest_goes_on(
    probe: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, method, _break)
    said, report, memory = _broken_run()
    _assert_told_once(said, report, f"probe {probe.name}")
    assert len(_numeric(memory)) == SHORT
    assert all("loss" in reading.scalars for reading in _numeric(memory))
    assert report["findings"][0]["id"] == "alarm"
    assert report["findings"][0]["count"] == SHORT


@pytest.mark.sample(8)
@pytest.mark.parametrize("detector", DEFAULT, ids=lambda detector: detector.id)
def test_a_broken_detector_is_dropped_and_the_rest_goes_on(detector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(detector.start()), "check", _break)
    monkeypatch.setattr(type(detector), "needs", ("loss",))
    said, report, memory = _broken_run(detectors=[detector, Alarm()])
    _assert_told_once(said, report, f"detector {detector.id}")
    assert len(_numeric(memory)) == SHORT
    assert {f["id"]: f["count"] for f in report["findings"]}["alarm"] == SHORT


def test_a_detector_that_cannot_start_is_dropped_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = DEFAULT[0]
    monkeypatch.setattr(type(broken), "start", _break)
    said, report, memory = _broken_run(detectors=[broken, Alarm()])
    _assert_told_once(said, report, f"detector {broken.id}")
    assert len(_numeric(memory)) == SHORT


@pytest.mark.parametrize("method", SINK_METHODS)
@pytest.mark.parametrize("name", SINKS)
def test_a_broken_sink_is_dropped_and_the_rest_goes_on(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SINKS[name]()
    monkeypatch.setattr(sink, method, _break)
    said, report, memory = _broken_run(sinks=[sink])
    assert len(said) == 1
    assert f"sink {name}" in said[0]
    assert len(_numeric(memory)) == SHORT
    if method != "close":  # the report was made before
        _assert_told_once(said, report, f"sink {name}")
        assert "the verdict has everything" in str(report["findings"])


def test_all_of_it_broken_at_once_never_reaches_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    for probe, method in PROBES:
        monkeypatch.setattr(probe, method, _break)
    sinks = [make() for make in SINKS.values()]
    for sink in sinks:
        for method in SINK_METHODS:
            monkeypatch.setattr(sink, method, _break)
    monkeypatch.setattr(Alarm, "check", _break)
    said, report, _ = _broken_run(sinks=sinks)
    assert len(said) == len(set(said)) == len({probe for probe, _ in PROBES}) + len(sinks) + 1
    assert report["run"]["steps"] == SHORT


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (reader, "complete"),
        (loop, "_loss_of"),
        (Fetch, "values"),
        (loop.Loop, "_step_closes"),
        (loop.Loop, "_settle"),
        (loop.Watched, "groups_changed"),
    ],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_an_error_in_the_watch_itself_never_reaches_the_loop(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, _break)
    said, report, _ = _broken_run()
    assert said
    assert len(said) == len(set(said))
    assert any(finding["id"] == "blind-probe" for finding in report["findings"])


@pytest.mark.parametrize("probe", sorted({probe for probe, _ in PROBES}, key=lambda probe: probe.name))
def test_a_probe_that_cannot_close_never_reaches_the_loop(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "close", _break)
    said, _, _ = _broken_run()
    assert len(said) == 1


def test_warnings_as_errors_do_not_let_it_through(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Gradients, "read", _break)
    monkeypatch.setattr(Alarm, "check", _break)
    sink = Memory()
    monkeypatch.setattr(sink, "write_reading", _break)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = watched(mlp_with_dropout, SHORT, detectors=[Alarm()], sinks=[sink])
    assert state == unwatched(mlp_with_dropout, SHORT)
    said = capsys.readouterr().err
    assert [said.count(part) for part in ("probe gradients", "detector alarm", "sink Memory")] == [1, 1, 1]


@pytest.mark.parametrize("owner", [*PROBES, (Alarm, "check"), (Memory, "write_reading"), (reader, "complete")], ids=str)
def test_strict_raises(owner: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = _traces(nn.Identity())
    monkeypatch.setattr(*owner, _break)
    with pytest.raises(BrokenError):
        watched(mlp_with_dropout, SHORT, level="extreme", detectors=[Alarm()], sinks=[Memory()], strict=True)
    assert _traces(nn.Identity()) == before


def test_the_users_own_errors_pass_unchanged() -> None:
    training = _seeded(mlp_with_dropout)
    with sg.watch(training.model, training.optimizer, sinks=[]) as watch:
        training.step()
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            training.model(torch.zeros(1, 5))
        loss = training.model(torch.zeros(1, 6)).sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        training.step()
    assert not [finding for finding in watch.findings if finding.id == "blind-probe"]


# -- the model stays what it is ------------------------------------------------------------------------------------


def test_a_watched_model_can_be_saved_and_loaded() -> None:
    training = _seeded(mlp_with_dropout)
    with sg.watch(training.model, training.optimizer, sinks=[]):
        training.step()
        saved = pickle.dumps(training.model)
        file = io.BytesIO()
        torch.save(training.model, file)
    assert b"seismograd" not in saved  # loads where it is not installed
    assert pickle.loads(saved)(_vectors()).shape == (4, 3)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert _bytes(dict(loaded.state_dict())) == _bytes(dict(training.model.state_dict()))


def test_a_copy_of_a_watched_model_is_not_watched() -> None:
    training = _seeded(mlp_with_dropout)
    with sg.watch(training.model, training.optimizer, sinks=[]) as watch:
        training.step()
        twin = copy.deepcopy(training.model)
        forwards = watch._loop._forwards  # type: ignore[union-attr]
        twin(_vectors())
        assert watch._loop._forwards == forwards  # type: ignore[union-attr]
    gone = weakref.ref(watch)
    del watch
    gc.collect()
    assert gone() is None, "the copy keeps the watch alive"


@pytest.mark.parametrize("make", [torch.jit.trace, torch.fx.symbolic_trace, torch.export.export])
def test_a_watched_model_can_be_traced(make: Callable[..., Any]) -> None:
    training = _seeded(mlp_with_dropout)
    training.model.eval()
    with sg.watch(training.model, training.optimizer, sinks=[], strict=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = _vectors()
        made = make(training.model) if make is torch.fx.symbolic_trace else make(training.model, (x,))
        run = made.module() if hasattr(made, "module_call_graph") else made
        assert torch.allclose(run(x), training.model(x))


# -- gone when it leaves -------------------------------------------------------------------------------------------


def _hooks(model: nn.Module) -> dict[str, int]:
    """Every hook on a model's modules and parameters, by place."""
    found: dict[str, int] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if "hook" in name and isinstance(value, dict) and value:
                found[f"{path}:{name}"] = len(value)
    for path, parameter in model.named_parameters():
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if getattr(parameter, name, None):
                found[f"{path}:{name}"] = len(getattr(parameter, name))
    return found


def _traces(model: nn.Module, optimizer: Optimizer | None = None) -> dict[str, Any]:
    """Everything that a watch may have changed."""
    optimizers, modules = (vars(sys.modules[n]) for n in ("torch.optim.optimizer", "torch.nn.modules.module"))
    return {
        "hooks": _hooks(model),
        "optimizer": {n: len(v) for n, v in vars(optimizer).items() if "hook" in n and v} if optimizer else {},
        "global optimizer": {n: dict(v) for n, v in optimizers.items() if n.startswith("_global") and "hook" in n},
        "global module": {n: dict(v) for n, v in modules.items() if n.startswith("_global") and isinstance(v, dict)},
        "engine": torch.autograd._engine_run_backward,
        "scale": GradScaler.__dict__["scale"],
        "scaler step": GradScaler.__dict__["step"],
        "next": _BaseDataLoaderIter.__dict__["__next__"],
        "threads": {thread.ident for thread in threading.enumerate()},
        "listeners": (list(patches._listeners), list(patches._undo)),
        "modes": (torch.is_grad_enabled(), torch.is_anomaly_enabled(), torch.get_num_threads()),
    }


@pytest.fixture
def training() -> Training:
    return _seeded(mlp_with_dropout)


def test_nothing_is_left_after_close(training: Training) -> None:
    before = _traces(training.model, training.optimizer)
    with sg.watch(training.model, training.optimizer, level="extreme") as watch:
        assert _traces(training.model, training.optimizer) != before
        training.step()
    assert _traces(training.model, training.optimizer) == before
    watch.close()  # twice is as once
    assert _traces(training.model, training.optimizer) == before
    training.step()
    assert watch.report()["run"]["steps"] == 1


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_is_left_after_an_error_in_the_loop(training: Training, error: type[BaseException]) -> None:
    before = _traces(training.model, training.optimizer)
    watch = sg.watch(training.model, training.optimizer, sinks=[])

    def train() -> None:
        with watch:
            training.step()
            raise error(1)

    with pytest.raises(error):
        train()
    assert _traces(training.model, training.optimizer) == before
    assert watch.status == ("crashed" if error is ValueError else "healthy")  # ended on purpose, it did not crash


def test_nothing_is_left_when_closed_in_the_middle_of_a_step(training: Training) -> None:
    before = _traces(training.model, training.optimizer)
    watch = sg.watch(training.model, training.optimizer, sinks=[], level="extreme", strict=True)
    loss = training.model(_vectors()).sum()
    loss.register_hook(lambda gradient: watch.close())
    loss.backward()
    training.optimizer.step()
    assert _traces(training.model, training.optimizer) == before


def test_nothing_is_left_when_the_watch_is_refused(training: Training) -> None:
    before = _traces(training.model)
    for wrong in (
        {"lag": 2},
        {"level": "loud"},
        {"scaler": object()},
        {"sinks": [object()]},
        {"detectors": [object()]},
    ):
        with pytest.raises((TypeError, ValueError)):
            sg.watch(training.model, training.optimizer, **wrong)  # type: ignore[arg-type]
        assert _traces(training.model) == before


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_overlapping_watches_may_close_in_any_order(training: Training, order: tuple[int, ...]) -> None:
    other = mlp_with_dropout()
    before = _traces(training.model), _traces(other.model)
    memories = [Memory() for _ in range(3)]
    watches = [
        sg.watch(t.model, t.optimizer, sinks=[memory], strict=True)
        for t, memory in zip((training, training, other), memories, strict=True)
    ]
    for at in order:
        training.step()
        other.step()
        watches[at].close()
    assert (_traces(training.model), _traces(other.model)) == before
    assert [len(_numeric(memories[at])) for at in order] == [1, 2, 3]


def test_a_patch_that_someone_set_over_ours_stays(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch.autograd._engine_run_backward
    watch = sg.watch(training.model, training.optimizer, sinks=[], strict=True)
    ours, calls = torch.autograd._engine_run_backward, []

    def theirs(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return ours(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", theirs)
    training.step()
    watch.close()
    training.step()
    assert torch.autograd._engine_run_backward is theirs
    assert len(calls) == 2
    assert watch.report()["run"]["steps"] == 1
    monkeypatch.undo()
    torch.autograd._engine_run_backward = original  # `undo` put ours back


def test_the_watch_is_freed_after_close(training: Training) -> None:
    """That atexit forgot it too: it would hold the watch."""
    watch = sg.watch(training.model, training.optimizer, level="extreme")
    for _ in range(12):
        training.step()
    watch.close()
    gone = [weakref.ref(watch), weakref.ref(watch._loop)]  # type: ignore[arg-type]
    del watch
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_the_model_is_freed_after_close(training: Training) -> None:
    watch = sg.watch(training.model, training.optimizer, level="extreme", lag=1)
    for _ in range(12):
        training.step()
    watch.close()
    gone = weakref.ref(training.model)
    training.model = training.optimizer = training.step = None  # type: ignore[assignment]
    gc.collect()
    assert gone() is None, "a closed watch, kept for its report, still holds the model"
    assert watch.report()["run"]["steps"] == 12


# -- at most one sync ----------------------------------------------------------------------------------------------

_WAITING = ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__index__")


class Syncs(TorchDispatchMode):
    """Counts what waits for a device: values read one by one, and copies to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in ("_local_scalar_dense", "item", "equal", "nonzero", "masked_select", "is_nonzero"):
            self.seen[name] += 1
        if name == "_to_copy" and kwargs.get("device") is not None and not kwargs.get("non_blocking"):
            self.seen["copy to a device"] += 1
        return func(*args, **kwargs)


@contextlib.contextmanager
def _counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    with monkeypatch.context() as patch, Syncs() as mode:
        for name in _WAITING:
            original = getattr(Tensor, name)

            def counting(self: Tensor, *args: Any, _original: Any = original, _name: str = name, **kwargs: Any) -> Any:
                mode.seen[f"Tensor.{_name}"] += 1
                return _original(self, *args, **kwargs)

            patch.setattr(Tensor, name, counting)
        yield mode.seen


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("build", [cnn_with_batch_norm, accumulation, loss_scaled], ids=lambda build: build.__name__)
def test_one_sync_for_a_reading(
    build: Callable[[], Training], level: str, lag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 40
    training = _seeded(build)
    with _counted(monkeypatch) as alone:
        for _ in range(steps):
            training.step()
    fetches = []
    original = Fetch.values
    monkeypatch.setattr(Fetch, "values", lambda self: fetches.append(self._vector is not None) or original(self))
    training, memory = _seeded(build), Memory()
    with (
        _counted(monkeypatch) as with_watch,
        sg.watch(training.model, training.optimizer, sinks=[memory], level=level, lag=lag, strict=True),
    ):
        for _ in range(steps):
            training.step()
    assert sum(not reading.facts for reading in memory.readings) == steps
    assert steps <= sum(fetches) <= 2 * steps + 1  # facts come by a copy of their own, which nobody waits for
    more = with_watch - alone
    more["Tensor.tolist"] -= sum(fetches) + 1  # one look at the parameters at the end
    assert 0 <= more.pop("Tensor.tolist") <= steps  # labels that lie on the CPU: nobody waits for those
    more.pop("Tensor.numpy", None)  # what a loss is divided by: it exists for what lies on the CPU only
    assert not more


# -- bounded -------------------------------------------------------------------------------------------------------


def _own_bytes() -> int:
    gc.collect()
    ours = tracemalloc.Filter(True, os.path.join(os.path.dirname(sg.__file__), "*"))
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([ours]).traces)


@pytest.mark.slow
@pytest.mark.parametrize(
    "level", [pytest.param(level, marks=() if level == "advanced" else pytest.mark.thorough) for level in LEVELS]
)
def test_memory_stays_bounded(level: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    optimizer, x = SGD(model.parameters(), lr=1e-4), torch.randn(4, 2)

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    with sg.watch(model, optimizer, level=level, sinks=[], strict=True):
        steps(1000)
        tracemalloc.start()
        try:
            steps(300)
            sizes = [_own_bytes()]
            for _ in range(3):
                steps(600)
                sizes.append(_own_bytes())
        finally:
            tracemalloc.stop()
    grown = [later - earlier for earlier, later in pairwise(sizes)]
    assert min(grown) < 10 * 1024, f"{grown} bytes in 600 steps each: what fills up and stops grows in some only"


# -- workers and children ------------------------------------------------------------------------------------------


class Told(Dataset[Tensor]):
    """Tells from inside a worker whether something listens there."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, at: int) -> Tensor:
        patched = torch.autograd._engine_run_backward.__module__.startswith("seismograd")
        return torch.tensor([float(len(patches._listeners)), float(patched), float(os.getpid())])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_loader_work_and_are_not_watched(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    model = nn.Linear(3, 1)
    optimizer, memory = SGD(model.parameters(), lr=1e-12), Memory()
    with sg.watch(model, optimizer, sinks=[memory], strict=True):
        loader = DataLoader(Told(), batch_size=2, num_workers=1, multiprocessing_context=method)
        for batch in loader:
            assert batch[:, :2].tolist() == [[0.0, 0.0]] * 2
            assert batch[0, 2] != float(os.getpid())
            optimizer.zero_grad()
            (model(batch / 1e6).mean()).backward()
            optimizer.step()
        assert len(patches._listeners) == 1
    assert len(_numeric(memory)) == 4
    assert sum("time/data" in reading.scalars for reading in memory.readings) == 4


_FORKS = """
import os, sys, torch, seismograd as sg
class Sink:
    def write_reading(self, reading):
        if not reading.facts: print("reading", flush=True)
    def write_finding(self, finding): ...
    def update_finding(self, finding): ...
    def close(self, report): print("closed", flush=True)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad(); model(torch.ones(1, 2)).sum().backward(); optimizer.step()
watch = sg.watch(model, optimizer, sinks=[Sink()])
step()
child = os.fork()
step()
if child:
    os.waitpid(child, 0)
sys.exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_says_nothing_and_the_parent_closes_at_exit() -> None:
    done = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["reading", "reading", "closed"]
    assert done.stderr == ""
