"""TrainingHistory: what its detectors are shown, and the verdict; EarlyStopping."""

import copy
import math
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seismograd.history
from seismograd.detectors import DEFAULT
from seismograd.history import EarlyStopping, TrainingHistory
from seismograd.judge import judge_all
from seismograd.records import Finding, Reading, Severity


@dataclass(frozen=True)
class Witness:
    """A detector that keeps what it is shown, and finds fault with losses above 1, mildly, and 2."""

    id: ClassVar[str] = "loss-high"
    needs: ClassVar[tuple[str, ...]] = ()
    follows: ClassVar[tuple[str, ...]] = ()
    shown: ClassVar[list[Reading]] = []

    def start(self):
        return self

    def check(self, reading):
        self.shown.append(reading)
        loss = reading.scalars["loss"]
        if loss > 1:
            severity = Severity.WARNING if loss > 2 else Severity.INFO
            return Finding(self.id, severity, reading.step, "high", recommendations=("lower it",))
        return None


@pytest.fixture
def shown(monkeypatch):
    Witness.shown.clear()
    monkeypatch.setattr(seismograd.history, "DEFAULT", (Witness(),))
    return Witness.shown


def history_of(losses, **others):
    history = TrainingHistory()
    for step, loss in enumerate(losses):
        history.record(step, loss, grad_norm=1.0, lr=1e-3, **{name: values[step] for name, values in others.items()})
    return history


def test_readings_hold_what_was_recorded(shown):
    history = TrainingHistory()
    history.record(step=10, loss=0.5, grad_norm=2.0, lr=0.1)
    history.record(step=20, loss=0.4, grad_norm=3.0, lr=0.2, val_loss=0.6)
    history.diagnose()
    assert shown == [
        Reading(10, {"loss": 0.5, "grad/norm": 2.0, "lr/0": 0.1}),
        Reading(20, {"loss": 0.4, "grad/norm": 3.0, "lr/0": 0.2, "val_loss": 0.6}),
    ]
    assert (history.val_loss, history.val_step) == ([0.6], [20])


def test_only_what_is_new_is_judged(shown):
    history = history_of([0.5, math.nan, 0.3])
    history.diagnose()
    history.diagnose()
    assert [reading.step for reading in shown] == [0, 1, 2]
    history.record(3, 0.2, 1.0, 1e-3, val_loss=0.3)
    assert history.diagnose()["metrics"]["steps"] == 4
    assert [reading.step for reading in shown] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "change",
    [
        lambda history: history.loss.pop(),
        lambda history: history.loss.__setitem__(-1, 0.1),
        lambda history: history.grad_norm.__setitem__(-2, 0.1),
        lambda history: setattr(history, "loss", [0.1, 0.1, 0.1, 0.1]),
        lambda history: history.step.clear(),
    ],
)
def test_lists_that_were_changed_are_judged_again(shown, change):
    history = history_of([3.0, 0.5, 0.4, 0.3])
    history.diagnose()
    del shown[:]
    change(history)
    verdict = history.diagnose()
    assert len(shown) == len(history.loss) == verdict["metrics"]["steps"]
    assert verdict["metrics"]["loss_end"] == history.loss[-1]


def test_the_verdict_names_findings_in_capitals_and_leaves_out_mere_information(shown):
    assert history_of([0.5, 1.5]).diagnose()["issues"] == []
    verdict = history_of([0.5, 2.5, 2.5]).diagnose()
    assert (verdict["status"], verdict["issues"], verdict["recommendations"]) == (
        "warning",
        ["LOSS_HIGH"],
        ["lower it"],
    )


def test_lists_filled_by_hand(shown):
    history = TrainingHistory(loss=[1.0, 0.9, 0.8, 0.7], val_loss=[2.0, 1.0])
    history.diagnose()
    assert [(reading.step, reading.scalars.get("val_loss")) for reading in shown] == [
        (0, None),
        (1, 2.0),
        (2, None),
        (3, 1.0),
    ]
    assert all("grad/norm" not in reading.scalars for reading in shown), "what was not measured is absent"


def test_a_validation_recorded_for_an_earlier_step_goes_with_the_next(shown):
    history = TrainingHistory(loss=[1.0, 0.9], step=[10, 20], val_loss=[2.0], val_step=[15])
    history.diagnose()
    assert [reading.scalars.get("val_loss") for reading in shown] == [None, 2.0]


def test_metrics(shown):
    history = TrainingHistory()
    for step, (loss, val_loss) in enumerate([(1.0, None), (math.nan, 0.8), (-0.5, 0.9), (0.2, math.inf)]):
        history.record(step, loss, grad_norm=step, lr=0.1 / (step + 1), val_loss=val_loss)
    metrics = history.diagnose()["metrics"]
    assert (metrics["loss_start"], metrics["loss_end"], metrics["loss_best"]) == (1.0, 0.2, -0.5)
    assert (metrics["loss_best_step"], metrics["val_loss_best"], metrics["val_loss_best_step"]) == (2, 0.8, 1)
    assert (metrics["grad_norm_max"], metrics["lr_start"], metrics["lr_end"]) == (3, 0.1, 0.025)


def test_nothing_recorded_is_healthy():
    assert TrainingHistory().diagnose() == {
        "status": "healthy",
        "issues": [],
        "recommendations": [],
        "metrics": {"steps": 0},
    }


def test_it_is_a_plain_dataclass_still():
    history = history_of([1.0, 0.5])
    history.diagnose()
    assert set(asdict(history)) == {"loss", "val_loss", "grad_norm", "learning_rate", "step", "val_step"}
    twin = copy.deepcopy(history)
    twin.record(2, math.nan, 1.0, 1e-3)
    assert twin.diagnose()["status"] == "critical"
    assert history.diagnose()["status"] == "healthy"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_has_both_names(bad):
    verdict = history_of([1.0, 0.9, bad]).diagnose()
    assert {"NONFINITE_LOSS", "LOSS_EXPLOSION"} <= set(verdict["issues"])
    assert len(verdict["issues"]) == len(set(verdict["issues"]))


def test_sparse_validation_is_paired_with_its_own_steps():
    sick, healthy = TrainingHistory(), TrainingHistory()
    for step in range(1000):
        validated = step % 50 == 49
        sick.record(step, 2 * math.exp(-step / 200), 1.0, 1e-3, 0.5 + abs(step - 400) / 400 if validated else None)
        healthy.record(step, 2 * math.exp(-step / 200), 1.0, 1e-3, 2.1 * math.exp(-step / 200) if validated else None)
    assert "OVERFITTING" in sick.diagnose()["issues"]
    assert healthy.diagnose()["issues"] == []


@settings(deadline=None)
@given(st.lists(st.floats(-1e3, 1e3) | st.just(math.nan), max_size=60), st.integers(1, 20))
def test_judged_in_pieces_or_at_once_the_verdict_is_the_same(losses, every):
    piecewise = TrainingHistory()
    for step, loss in enumerate(losses):
        piecewise.record(step, loss, 1.0, 1e-3)
        if step % every == 0:
            piecewise.diagnose()
    whole = history_of(losses)
    assert piecewise.diagnose()["issues"] == whole.diagnose()["issues"]
    readings = [Reading(step, {"loss": loss, "grad/norm": 1.0, "lr/0": 1e-3}) for step, loss in enumerate(losses)]
    live = {finding.id for finding in judge_all(readings, DEFAULT) if finding.severity is not Severity.INFO}
    assert {issue.lower().replace("_", "-") for issue in whole.diagnose()["issues"]} - {"loss-explosion"} == live - {
        "loss-explosion"
    }


def test_losses_may_be_negative():
    rng = np.random.default_rng(0)
    falling = 3 * np.exp(-np.arange(300) / 60) - 10 + rng.normal(0, 0.02, 300)
    assert history_of(falling).diagnose()["issues"] == []


def test_plot():
    history = history_of([1.0, 0.5], val_loss=[None, 0.7])
    assert {"loss", "val_loss", "grad_norm", "learning_rate"} <= {trace.name for trace in history.plot().data}


def test_stopping_after_patience_counts_from_the_last_improvement():
    stopper = EarlyStopping(patience=2)
    assert [stopper.update(value) for value in [3.0, 2.0, 2.5, 1.0, 1.5, 1.0]] == [False] * 5 + [True]
    assert (stopper.best, stopper.best_step, stopper.should_stop) == (1.0, 3, True)


def test_a_gain_must_exceed_min_delta():
    stopper = EarlyStopping(patience=1, min_delta=0.25)
    assert not stopper.update(1.0)
    assert stopper.update(0.75), "a gain of just min_delta is none"
    assert not EarlyStopping(patience=1, min_delta=0.25, mode="max").update(1.0)


def test_what_is_larger_is_better_in_mode_max():
    stopper = EarlyStopping(patience=1, mode="max")
    assert [stopper.update(value, step=10 * at) for at, value in enumerate([0.5, 0.6, 0.55])] == [False, False, True]
    assert (stopper.best, stopper.best_step) == (0.6, 10)


def test_a_stop_is_final():
    stopper = EarlyStopping(patience=1)
    assert [stopper.update(value) for value in [1.0, 2.0, 0.5]] == [False, True, True]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", ["min", "max"])
def test_what_is_not_finite_stops_at_once_and_is_no_best(bad, mode):
    stopper = EarlyStopping(patience=5, mode=mode)
    stopper.update(1.0)
    assert stopper.update(bad)
    assert not stopper.improved
    assert stopper.best == 1.0


def test_checkpoint_on_improvement():
    saved, by_hand = [], []
    stopper = EarlyStopping(patience=3, checkpoint=lambda: saved.append(stopper.best))
    for value in [1.0, 1.1, 0.8, 0.9, 0.7]:
        stopper.update(value)
        if stopper.improved:
            by_hand.append(value)
    assert saved == by_hand == [1.0, 0.8, 0.7]


@pytest.mark.parametrize("wrong", [{"patience": 0}, {"min_delta": -0.1}, {"mode": "best"}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        EarlyStopping(**wrong)
