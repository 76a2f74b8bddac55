"""Recovery under the conditions people train in: scalers, accumulation, closures, several optimizers, batch norm."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import seismograd as sg
from seismograd.recovery import LowerLr, Rollback, Skip, TrainingStopped, Trouble

from .nets import BAD, X, done, finite, loss_of, net, watch


def test_a_skipped_step_leaves_everything_as_it_was_and_the_gradients_where_they_are() -> None:
    model = net(norm=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    with watch(model, optimizer, {"nonfinite-gradient": "skip"}):
        for step in range(6):
            before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            optimizer.zero_grad()
            loss_of(model, BAD if step == 4 else X).backward()
            optimizer.step()
            if step == 4:
                assert all(p.grad is not None and p.grad.isnan().any() for p in model.parameters())
                assert_equal(before, (model.state_dict(), optimizer.state_dict()))
    assert finite(model), "batch norm's statistics, too"


def assert_equal(one: Any, other: Any) -> None:
    if isinstance(one, Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert_equal(value, other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for value, same in zip(one, other, strict=True):
            assert_equal(value, same)
    else:
        assert one == other


@pytest.mark.parametrize("policy", ["skip", "rollback", "clip"])
def test_with_a_scaler_that_skips_by_itself(policy: str) -> None:
    model = net(norm=True)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=64.0)
    with watch(model, optimizer, {"nonfinite-gradient": policy}) as watcher:
        for step in range(12):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, BAD if step == 5 else X)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert finite(model)
    assert [event["step"] for event in done(watcher)] == [5]
    assert watcher.get_training_summary()["skipped_steps"] == 1
    assert scaler.get_scale() == 32.0, "the scaler has seen what it had to see"


@pytest.mark.parametrize("unscales", [False, True])
def test_a_finite_outlier_is_skipped_under_a_scaler(unscales: bool) -> None:
    model = net()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=64.0)
    with watch(model, optimizer, {"gradient-explosion": "skip"}) as watcher:
        for step in range(40):
            before = copy.deepcopy(model.state_dict())
            optimizer.zero_grad()
            scaler.scale(loss_of(model, X * 1e6 if step == 30 else X)).backward()
            if unscales:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            if step == 30:
                assert_equal(before, model.state_dict())
    assert [event["step"] for event in done(watcher)] == [30]
    assert scaler.get_scale() == 64.0


def test_the_first_skips_of_a_scaler_are_no_recovery() -> None:
    model = net()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=2.0**127)
    with watch(model, optimizer, {"info": "stop"}) as watcher:
        for _ in range(10):
            optimizer.zero_grad()
            scaler.scale(1e3 * loss_of(model)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert done(watcher) == []


def test_clipping_is_of_the_unscaled_gradient() -> None:
    model = net()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=64.0)
    with watch(model, optimizer, {"gradient-explosion": "clip"}) as watcher:
        for step in range(40):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, X * 1e6 if step == 30 else X)).backward()
            scaler.step(optimizer)
            scaler.update()
            if step == 30:
                norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters()]))  # type: ignore[union-attr]
    (event,) = done(watcher)
    assert event["action"] == "clip"
    assert float(norm) == pytest.approx(event["after"]["gradient_norm"], rel=1e-3)
    assert event["after"]["gradient_norm"] < 10.0
    assert event["before"]["clipped_from"] > 1e3


def test_under_accumulation_the_whole_step_is_skipped() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, {"nonfinite-input": "skip"}) as watcher:
        for step in range(8):
            before = copy.deepcopy(model.state_dict())
            optimizer.zero_grad()
            for micro in range(4):
                (loss_of(model, BAD if (step, micro) == (5, 1) else X) / 4).backward()
            optimizer.step()
            if step == 5:
                assert_equal(before, model.state_dict())
    assert [event["step"] for event in done(watcher)] == [5]
    assert finite(model)


def test_two_optimizers_of_one_backward_are_skipped_together() -> None:
    model = net()
    first, second = (torch.optim.SGD(model[at].parameters(), lr=0.1) for at in (0, 2))
    with watch(model, [first, second], {"nonfinite-loss": "skip"}) as watcher:
        for step in range(8):
            before = copy.deepcopy(model.state_dict())
            first.zero_grad()
            second.zero_grad()
            loss_of(model, BAD if step == 5 else X).backward()
            first.step()
            second.step()
            if step == 5:
                assert_equal(before, model.state_dict())
    assert finite(model)
    assert watcher.get_training_summary()["skipped_steps"] == 1


def test_of_a_gan_only_the_sick_half_is_skipped() -> None:
    torch.manual_seed(0)
    halves = {"g": nn.Linear(4, 8), "d": nn.Linear(8, 1)}
    optimizers = {name: torch.optim.Adam(half.parameters(), lr=1e-3) for name, half in halves.items()}
    with watch(halves, list(optimizers.values()), {"nonfinite-*": "skip"}) as watcher:
        for step in range(10):
            real = X * math.nan if step == 6 else X
            before = copy.deepcopy({name: half.state_dict() for name, half in halves.items()})
            optimizers["d"].zero_grad()
            fake = halves["g"](torch.randn(64, 4))
            (halves["d"](fake.detach()).mean() - halves["d"](real).mean()).backward()
            optimizers["d"].step()
            optimizers["g"].zero_grad()
            (-halves["d"](fake).mean()).backward()
            optimizers["g"].step()
            if step == 6:
                assert_equal(before["d"], halves["d"].state_dict())
                assert not torch.equal(before["g"]["weight"], halves["g"].weight)
    assert finite(halves["g"])
    assert finite(halves["d"])
    assert watcher.get_training_summary()["skipped_steps"] == 1


@pytest.mark.parametrize(
    "made", [lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=4), lambda p: torch.optim.Adam(p, lr=0.01)]
)
def test_a_step_with_a_closure(made: Callable[..., torch.optim.Optimizer]) -> None:
    model = net()
    optimizer = made(model.parameters())
    with watch(model, optimizer, {"nonfinite-gradient": "skip"}) as watcher:
        for step in range(8):
            before = copy.deepcopy(model.state_dict())

            def closure(x: Tensor = BAD if step == 5 else X) -> Tensor:
                optimizer.zero_grad()
                loss = loss_of(model, x)
                loss.backward()
                return loss

            optimizer.step(closure)
            if step == 5:
                assert_equal(before, model.state_dict())
    assert finite(model)
    assert [event["step"] for event in done(watcher)] == [5]


def test_sparse_gradients_and_tied_weights() -> None:
    torch.manual_seed(0)
    table = nn.Embedding(20, 4, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    with watch(table, optimizer, {"nonfinite-gradient": "skip"}) as watcher:
        for step in range(6):
            before = table.weight.detach().clone()
            optimizer.zero_grad()
            (table(torch.arange(5)).square().mean() * (math.inf if step == 3 else 1.0)).backward()
            optimizer.step()
            assert torch.equal(before, table.weight) == (step == 3)
    assert len(done(watcher)) == 1


# -- lower-lr --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 3, gamma=0.5),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1.0 / (1 + step)),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 20, eta_min=0.001),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=False),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o,
            [
                torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=4),
                torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
            ],
            [4],
        ),
    ],
    ids=["StepLR", "LambdaLR", "CosineAnnealingLR", "OneCycleLR", "SequentialLR"],
)
def test_a_lowered_rate_stays_lowered_whatever_the_schedule(schedule: Callable[..., Any]) -> None:
    def rates(recovery: Any) -> list[float]:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler, seen = schedule(optimizer), []
        with watch(model, optimizer, recovery):
            for step in range(16):
                optimizer.zero_grad()
                loss_of(model, BAD if step == 7 else X).backward()
                optimizer.step()
                seen.append(optimizer.param_groups[0]["lr"])
                scheduler.step()
        return seen

    plain, lowered = rates({"nonfinite-loss": "skip"}), rates({"nonfinite-loss": LowerLr(factor=0.25)})
    assert lowered[:7] == plain[:7]
    assert lowered[7:] == pytest.approx([0.25 * lr for lr in plain[7:]])


# -- rollback --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_rollback_brings_everything_back(tmp_path: Path, on_disk: bool) -> None:
    model = net(norm=True)
    model.append(nn.Dropout(0.1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)
    states: dict[int, Any] = {}
    policy = Rollback(every=4, settle=2, folder=tmp_path / "good" if on_disk else None)
    with watch(model, optimizer, {"nonfinite-parameter": policy}) as watcher:
        for step in range(20):
            optimizer.zero_grad()
            loss_of(model).backward()
            states[step] = copy.deepcopy((model.state_dict(), optimizer.state_dict(), scheduler.state_dict()))
            if step == 14:
                with torch.no_grad():
                    model[0].weight.fill_(math.nan)  # type: ignore[union-attr, operator]
            optimizer.step()
            if step == 15:
                (event,) = done(watcher)
                assert event["action"] == "rollback"
                assert event["after"]["step"] == 12
                assert_equal(states[12], (model.state_dict(), optimizer.state_dict(), scheduler.state_dict()))
                assert not on_disk or list((tmp_path / "good").iterdir())
            scheduler.step()
    assert finite(model)
    assert watcher.get_training_summary()["rollbacks"] == 1
    assert not on_disk or not list((tmp_path / "good").iterdir()), "nothing is left behind"


def test_random_numbers_go_back_once_and_not_to_the_same_batches_for_ever() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(3)
    drawn: list[float] = []
    with watch(model, optimizer, {"nonfinite-parameter": Rollback(every=100)}) as watcher:
        for step in range(20):
            optimizer.zero_grad()
            loss_of(model).backward()
            if step in (7, 12):
                with torch.no_grad():
                    model[2].bias.fill_(math.inf)  # type: ignore[union-attr, operator]
            optimizer.step()
            drawn.append(float(torch.rand(())))
    first, second = done(watcher)
    assert first["after"]["step"] == second["after"]["step"] == 0
    assert drawn[first["step"]] == drawn[0]
    assert drawn[second["step"]] == drawn[second["step"] - first["step"]], "the second time they go on"


# -- stop, functions, escalation -------------------------------------------------------------------------------------


def test_stop_comes_before_the_update() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watcher = watch(model, optimizer, "stop")
    before: list[Any] = []

    def train() -> None:
        with watcher:
            for step in range(8):
                before[:] = [copy.deepcopy(model.state_dict())]
                optimizer.zero_grad()
                loss_of(model, BAD if step == 4 else X).backward()
                optimizer.step()

    with pytest.raises(TrainingStopped, match=r"step 4.*nonfinite-input"):
        train()
    assert_equal(before[0], model.state_dict())
    report = watcher.report()
    assert report["run"]["status"] == "critical"
    assert report["run"]["exit"]["code"] == 130
    assert report["events"][-1]["data"]["action"] == "stop"


def test_a_function_decides() -> None:
    seen: list[Trouble] = []

    def decide(trouble: Trouble) -> str | None:
        seen.append(trouble)
        return "skip" if len(seen) == 1 else None

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, {"nonfinite-*": decide}) as watcher:
        for step in range(8):
            optimizer.zero_grad()
            loss_of(model, BAD if step in (4, 6) else X).backward()
            optimizer.step()
    assert [event["action"] for event in done(watcher)][:2] == ["skip", "call"]
    assert seen[0].step == 4
    assert seen[0].optimizer is optimizer
    assert seen[0].findings
    assert math.isnan(seen[0].loss or 0.0)
    assert not finite(model), "it was asked, and wanted nothing done"


def test_a_function_that_fails_does_not_stop_the_training() -> None:
    def decide(trouble: Trouble) -> None:
        raise RuntimeError("oops")

    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watcher = sg.watch(model, optimizer, recovery={"critical": decide}, sinks=[], store=False)

    def train() -> None:
        with watcher:
            for step in range(6):
                optimizer.zero_grad()
                loss_of(model, BAD if step == 4 else X).backward()
                optimizer.step()

    with pytest.warns(RuntimeWarning, match="recovery by decide failed"):
        train()
    assert any("oops" in event["message"] for event in watcher.events)


def test_what_does_not_help_gives_way_to_the_next() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ladder = [Skip(in_a_row=3), LowerLr(limit=2, rest=0), "stop"]
    watcher = watch(model, optimizer, {"nonfinite-input": ladder})

    def train() -> None:
        with watcher:
            for step in range(30):
                optimizer.zero_grad()
                loss_of(model, BAD if step >= 4 else X).backward()
                optimizer.step()

    with pytest.raises(TrainingStopped):
        train()
    assert [event["action"] for event in done(watcher)] == ["skip", "skip", "skip", "lower-lr", "lower-lr", "stop"]
    escalations = [event["message"] for event in watcher.events if event["event_type"] == "recovery_escalated"]
    assert escalations == [
        "step 7: nonfinite-input: skip has not helped, lower-lr comes next",
        "step 9: nonfinite-input: lower-lr has not helped, stop comes next",
    ]
    assert "repeated-recovery" in [finding.id for finding in watcher.findings]
    assert finite(model)


def test_a_thousand_alike_are_events_and_then_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seismograd.recovery.telling.MOST", 4)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, {"nonfinite-input": Skip(limit=None)}) as watcher:
        for step in range(24):
            optimizer.zero_grad()
            loss_of(model, BAD if step % 2 else X).backward()
            optimizer.step()
    assert [event["times"] for event in done(watcher)] == [1, 2, 3, 4, 8]
    assert watcher.get_training_summary()["skipped_steps"] == 12


def test_continue_is_told_too() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, {"nonfinite-loss": "continue"}) as watcher:
        for step in range(5):
            optimizer.zero_grad()
            loss_of(model, BAD if step == 3 else X).backward()
            optimizer.step()
    assert done(watcher)[0]["action"] == "continue"
    assert not finite(model)
    assert watcher.get_training_summary()["skipped_steps"] == 0


# -- what is kept and shown ------------------------------------------------------------------------------------------


def test_the_bad_batch_is_kept_and_can_be_run_again(home: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, {"nonfinite-input": "skip"}) as watcher:
        for step in range(8):
            optimizer.zero_grad()
            loss_of(model, BAD if step in (3, 4, 6) else X).backward()
            optimizer.step()
    kept = [Path(event["capture"]) for event in done(watcher)]
    assert len(set(kept)) == 3
    assert all(path.is_relative_to(home) or path.exists() for path in kept)
    again = sg.replay(kept[1], model=net())
    assert again.phase == "input"


def test_it_is_said_on_the_terminal_and_in_the_log(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, recovery={"nonfinite-input": "skip"}, strict=True, store=False):
        for step in range(60):
            optimizer.zero_grad()
            loss_of(model, BAD if step % 2 else X).backward()
            optimizer.step()
    shown = capsys.readouterr().err
    assert "= recovery: the update was skipped 30 times" in shown
    lines = [line for line in shown.splitlines() if line.startswith("recovery: ")]
    assert lines[0] == "recovery: step 1: nonfinite-input: the update was skipped"
    assert len(lines) == 6, "the 1st, 2nd, 3rd, 4th, 8th and 16th"
    assert lines[-1].endswith("(16 times by now)")
    assert sum("the update was skipped" in record.getMessage() for record in caplog.records) == 30


def test_events_are_recorded_with_the_run(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, recovery={"nonfinite-input": "skip"}, sinks=[], store=tmp_path / "runs.db"):
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, BAD if step == 3 else X).backward()
            optimizer.step()
    (run,) = sg.runs(tmp_path / "runs.db")
    (event,) = [event for event in run.events() if event["event_type"] == "recovery"]
    assert event["data"]["action"] == "skip"
    assert event["data"]["before"]["loss"] == "NaN"
    assert run.report()["summary"]["skipped_steps"] == 1


def test_without_replay_the_update_is_skipped_all_the_same() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, {"nonfinite-gradient": "skip"}, replay=False) as watcher:
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, BAD if step == 3 else X).backward()
            optimizer.step()
    assert finite(model)
    assert "capture" not in done(watcher)[0]


def test_every_step_is_read_however_small_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    from seismograd import governor

    monkeypatch.setattr(governor, "GRACE", 0.0)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bad = {40, 77, 103}
    with watch(model, optimizer, {"nonfinite-gradient": "skip"}, level="basic", budget=1e-6) as watcher:
        for step in range(120):
            optimizer.zero_grad()
            loss_of(model, BAD if step in bad else X).backward()
            optimizer.step()
    assert {event["step"] for event in done(watcher)} == bad
    assert finite(model)
