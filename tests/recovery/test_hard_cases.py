"""What programs do around an update that is held back, and what a recovery must not trip over."""

from __future__ import annotations

import copy
import gc
import math
import threading
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seismograd.recovery import LowerLr, Rollback, Trouble

from .nets import BAD, X, Y, done, finite, loss_of, net, watch


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: int = 10,
    *,
    bad: int = -1,
    breaks: int = -1,
    after: Callable[[int], object] = lambda _step: None,
) -> None:
    """`bad`: the step with a bad batch; `breaks`: the one before whose update the weights are lost."""
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, BAD if step == bad else X).backward()
        if step == breaks:
            with torch.no_grad():
                next(model.parameters()).fill_(math.nan)
        optimizer.step()
        after(step)


class Naive(torch.optim.Optimizer):
    """As people write them for a paper: every parameter has a gradient, and steps are counted in the group."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "k": 0})
        self.inside: Callable[[], object] = lambda: None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inside()
        for group in self.param_groups:
            group["k"] += 1
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["lr"])


# -- an update that is held back -------------------------------------------------------------------------------------


def test_an_optimizer_that_expects_gradients_and_counts_for_itself() -> None:
    model = net()
    optimizer = Naive(model.parameters())
    with watch(model, optimizer, {"nonfinite-*": "skip"}) as watcher:
        train(model, optimizer, bad=5)
    assert finite(model)
    assert optimizer.param_groups[0]["k"] == 9
    assert len(done(watcher)) == 1


def test_hooks_of_the_user_find_the_gradients() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[bool] = []

    def look(*_: Any) -> None:
        seen.append(all(p.grad is not None for group in optimizer.param_groups for p in group["params"]))

    optimizer.register_step_pre_hook(look)
    optimizer.register_step_post_hook(look)
    with watch(model, optimizer, {"nonfinite-*": "skip"}):
        train(model, optimizer, bad=5)
    assert seen == [True] * 20
    assert finite(model)


def test_another_optimizer_that_steps_meanwhile_lets_nothing_through() -> None:
    model, other = net(), net()
    optimizer, others = Naive(model.parameters()), torch.optim.SGD(other.parameters(), lr=0.1)
    optimizer.inside = others.step
    with watch(model, optimizer, {"nonfinite-*": "skip"}):
        train(model, optimizer, bad=5)
    assert finite(model)


def test_an_optimizer_inside_another_is_skipped_with_it() -> None:
    class Wrapping(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self.inner = inner
            super().__init__([p for group in inner.param_groups for p in group["params"]], {})

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.inner.step()

    model = net()
    optimizer = Wrapping(torch.optim.SGD(model.parameters(), lr=0.1))
    with watch(model, optimizer, {"nonfinite-*": "skip"}) as watcher:
        train(model, optimizer, bad=5)
    assert finite(model)
    assert watcher.get_training_summary()["skipped_steps"] == 1


def test_gradients_of_a_step_that_failed_do_not_come_back() -> None:
    parts = nn.ModuleDict({"a": nn.Linear(8, 2), "b": nn.Linear(8, 2)})

    class Mine(torch.optim.SGD):
        pass

    optimizer, fails = Mine(parts.parameters(), lr=0.1), False

    def fail(*_: Any) -> None:
        if fails:
            raise OSError("the log is full")

    optimizer.register_step_post_hook(fail)
    with watch(parts, optimizer, {"nonfinite-*": "skip"}):
        for step in range(10):
            optimizer.zero_grad()
            nn.functional.cross_entropy(parts["ab"[step % 2]](BAD if step == 5 else X), Y).backward()
            fails = step == 5
            try:
                optimizer.step()
            except OSError:
                assert step == 5
    assert finite(parts)


def test_an_optimizer_that_cannot_be_held_back_is_said() -> None:
    model = net()

    class Foreign:
        def step(self) -> None:
            with torch.no_grad():
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter.sub_(0.1 * parameter.grad)

    def run() -> None:
        with watch(model, Foreign(), {"nonfinite-*": "skip"}, strict=False):
            for _ in range(4):
                model.zero_grad()
                loss_of(model).backward()
                Foreign().step()

    with pytest.warns(RuntimeWarning, match="recovery failed.*none of torch's"):
        run()


# -- schedules and rates ---------------------------------------------------------------------------------------------


def test_a_schedule_that_has_not_stepped_yet_keeps_the_lowered_rate() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _epoch: 1.0)
    with watch(model, optimizer, {"nonfinite-*": LowerLr(factor=0.5)}):
        train(model, optimizer, 20, bad=5, after=lambda step: step % 10 == 9 and scheduler.step())
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_a_schedule_that_had_not_stepped_yet_goes_back_too() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    with watch(model, optimizer, {"nonfinite-parameter": Rollback(every=100)}):
        train(model, optimizer, 30, breaks=15, after=lambda step: step % 10 == 9 and scheduler.step())
    assert scheduler.last_epoch == 2, "that of step 9 is undone"
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**scheduler.last_epoch)


def test_the_schedule_and_scaler_of_another_training_are_not_touched() -> None:
    models = net(), net()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    ours, theirs = (torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5) for optimizer in optimizers)

    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def step_all(step: int) -> None:
        optimizers[1].zero_grad()
        scaler.scale(loss_of(models[1])).backward()
        scaler.step(optimizers[1])
        scaler.update(128.0 if step == 15 else None)
        ours.step()
        theirs.step()

    with watch(models[0], optimizers[0], {"nonfinite-parameter": Rollback(every=5)}) as watcher:
        train(models[0], optimizers[0], 20, breaks=15, after=step_all)
    assert len(done(watcher)) == 1
    assert ours.last_epoch < theirs.last_epoch == 20
    assert scaler.get_scale() == 128.0


def test_a_rate_that_all_groups_share_is_lowered_once() -> None:
    model = net()
    groups = [{"params": model[at].parameters()} for at in (0, 2)]
    optimizer = torch.optim.SGD(groups, lr=torch.tensor(0.1))
    with watch(model, optimizer, {"nonfinite-*": LowerLr(factor=0.5)}):
        train(model, optimizer, bad=5)
    assert float(optimizer.param_groups[1]["lr"]) == pytest.approx(0.05)


def test_each_optimizer_is_clipped_to_its_own_usual_norm() -> None:
    torch.manual_seed(0)
    halves = {"g": nn.Linear(4, 8), "d": nn.Linear(8, 1)}
    optimizers = {name: torch.optim.SGD(half.parameters(), lr=1e-6) for name, half in halves.items()}
    with watch(halves, list(optimizers.values()), {"gradient-explosion": "clip"}) as watcher:
        for step in range(60):
            for name, size, scale in (("d", 8, 1000.0), ("g", 4, 1.0)):
                optimizers[name].zero_grad()
                loss = halves[name](torch.randn(64, size)).square().mean()
                (loss * scale * (1e4 if (name, step) == ("g", 50) else 1.0)).backward()
                optimizers[name].step()
    (event,) = done(watcher)
    assert event["after"]["gradient_norm"] < 10.0


# -- states ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(
    "odd",
    [
        lambda: torch.eye(4).to_sparse(),
        lambda: torch.ones(3, dtype=torch.complex128),
        lambda: torch.ones(3, dtype=torch.bfloat16),
        lambda: torch.arange(5.0).expand(4, -1),
        lambda: torch.ones(4, 5).t(),
        lambda: torch.tensor(3),
        lambda: torch.ones(3).to(torch.float8_e4m3fn),
    ],
    ids=["sparse", "complex128", "bfloat16", "expanded", "transposed", "scalar", "float8"],
)
def test_tensors_of_any_kind_go_back(tmp_path: Path, odd: Callable[[], Tensor], on_disk: bool) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()
            self.register_buffer("odd", odd())

        def forward(self, x: Tensor) -> Any:
            return self.net(x)

    model = Odd()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    policy = Rollback(every=4, settle=2, folder=tmp_path if on_disk else None)
    with watch(model, optimizer, {"nonfinite-parameter": policy}) as watcher:
        train(model, optimizer, 16, breaks=12)
    assert [event["action"] for event in done(watcher)] == ["rollback"]
    assert finite(model.net)


def test_without_the_states_folder_the_bad_batch_is_still_left_out(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (tmp_path / "file").touch()
    policy = Rollback(folder=tmp_path / "file" / "states")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with watch(model, optimizer, {"nonfinite-*": policy}, strict=False):
            train(model, optimizer, bad=5)
    assert finite(model)
    assert any("keeping a good state failed" in str(one.message) for one in said)


def test_a_state_that_is_gone_is_said_and_the_update_skipped(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def lose(step: int) -> None:
        if step == 6:
            for file in tmp_path.iterdir():
                file.unlink()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with watch(model, optimizer, {"nonfinite-*": Rollback(folder=tmp_path)}, strict=False) as watcher:
            train(model, optimizer, 9, breaks=8, after=lose)
    assert any("going back to a good state failed" in str(one.message) for one in said)
    assert [event["action"] for event in done(watcher)] == ["skip"]


def test_no_state_is_kept_of_a_model_that_is_lost() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, {"loss-explosion": Rollback(every=5, settle=0)}) as watcher:
        train(model, optimizer, 30, bad=12)
        assert [state.step for state in watcher.recovery._shelf.states] == [0, 5, 10]


def test_batch_norm_goes_back_without_a_replay() -> None:
    model = net(norm=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, {"nonfinite-*": Rollback(every=5)}, replay=False):
        train(model, optimizer, 20, bad=15)
    assert finite(model)


def test_everything_is_let_go_of_at_the_end() -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    watcher = watch(model, optimizer, {"nonfinite-parameter": Rollback(every=5)})
    for _ in range(2):
        train(model, optimizer, 10, breaks=8)
        scheduler.step()
    watcher.close()
    assert done(watcher)
    left = [weakref.ref(one) for one in (model, optimizer, scheduler)]
    del model, optimizer, scheduler
    gc.collect()
    assert [one() for one in left] == [None, None, None]


# -- when, and by whom -----------------------------------------------------------------------------------------------


def test_a_function_that_only_looks_on_may_do_so_for_ever() -> None:
    seen: list[int] = []

    def look(trouble: Trouble) -> None:
        seen.append(trouble.step)

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, {"nonfinite-*": look}):
        train(model, optimizer, 40, bad=5)
    assert len(seen) == 35


def test_a_late_reading_prevents_nothing_and_claims_nothing() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch(model, optimizer, {"gradient-explosion": "rollback", "loss-spike": "rollback"}, lag=1) as watcher:
        for step in range(80):
            optimizer.zero_grad()
            loss_of(model, X * 1e5 if step == 70 else X).backward()
            optimizer.step()
    (event,) = done(watcher)
    assert event["after"]["step"] == 50, "the update of the bad batch has taken place"
    assert not event["suspected"]


def test_a_schedule_that_cannot_be_copied_is_no_reason_to_let_a_bad_batch_in() -> None:
    class Locked(torch.optim.lr_scheduler.StepLR):
        def state_dict(self) -> dict[str, Any]:
            return {"lock": threading.Lock()}

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = Locked(optimizer, 3)
    before: dict[str, Tensor] = {}

    def look(step: int) -> None:
        scheduler.step()
        if step == 19:
            before.update(copy.deepcopy(model.state_dict()))
        if step == 20:
            assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())

    with pytest.warns(RuntimeWarning, match="keeping a good state failed"):  # noqa: SIM117
        with watch(model, optimizer, {"nonfinite-*": Rollback(every=5)}, strict=False):
            train(model, optimizer, 30, bad=20, after=look)
    assert finite(model)
