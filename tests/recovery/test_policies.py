"""What `recovery` takes, and what it says to what it cannot take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.detectors import DEFAULT
from seismograd.records import Severity
from seismograd.recovery import Clip, LowerLr, Rollback, Skip, Stop
from seismograd.recovery.policies import Ladder, Plan, policy_of


def test_an_id_goes_before_a_pattern_before_a_class_before_a_severity() -> None:
    plan = Plan({"critical": "stop", "numerics": "clip", "nonfinite-*": "skip", "nonfinite-loss": "continue"}, DEFAULT)

    def key(name: str, severity: Severity | None) -> str | None:
        ladder = plan.ladder_for(name, severity)
        return None if ladder is None else ladder.key

    assert key("nonfinite-loss", Severity.CRITICAL) == "nonfinite-loss"
    assert key("nonfinite-input", Severity.CRITICAL) == "nonfinite-*"
    assert key("gradient-explosion", None) == "numerics"
    assert key("loss-explosion", Severity.CRITICAL) == "critical"
    assert key("loss-explosion", Severity.WARNING) is None
    assert key("loss-explosion", None) is None, "what is only suspected has no severity"


def test_what_is_only_worth_knowing_is_acted_on_by_its_name_or_as_such() -> None:
    def key(given: dict[str, Any]) -> str | None:
        ladder = Plan(given, DEFAULT).ladder_for("class-imbalance", Severity.INFO)
        return None if ladder is None else ladder.key

    assert key({"data": "skip", "*": "skip", "warning": "skip"}) is None
    assert key({"data": "skip", "class-imbalance": "skip"}) == "class-imbalance"
    assert key({"data": "skip", "info": "skip"}) == "info"


@pytest.mark.parametrize("policy", ["skip", "clip", "lower-lr", "rollback", "stop", "continue", print])
def test_no_update_mends_what_is_short(policy: Any) -> None:
    acts = policy not in ("skip", "clip", "lower-lr", "rollback")
    for severity in Severity:
        plan = Plan({"info": policy}, DEFAULT)
        assert (plan.ladder_for("slow-step", severity) is not None) is acts
        assert plan.ladder_for("loss-spike", severity) is not None
        assert Plan({"slow-step": policy}, DEFAULT).ladder_for("slow-step", severity) is not None, "it was asked for"


def test_what_comes_after_a_policy() -> None:
    def names(given: Any) -> list[str]:
        return [policy.name for policy in Ladder.of("critical", given).policies]

    assert names("skip") == ["skip", "stop"]
    assert names("clip") == ["clip", "skip", "stop"]
    assert names("continue") == ["continue"]
    assert names("stop") == ["stop"]
    assert names(["lower_lr", Rollback(), Stop()]) == ["lower-lr", "rollback", "stop"]
    assert names(Skip(limit=None)) == ["skip"], "without a limit nothing comes after it"


@pytest.mark.parametrize(
    ("recovery", "error", "text"),
    [
        ({"nonfinite-gradients": "skip"}, ValueError, "did you mean 'nonfinite-gradient'"),
        ({"none-*": "skip"}, ValueError, "names no finding"),
        ({"nonfinite-loss": "skp"}, ValueError, "did you mean 'skip'"),
        ({"nonfinite-loss": 3}, TypeError, "3 is no policy"),
        ({"nonfinite-loss": Skip}, TypeError, r"write Skip\(\)"),
        ({"nonfinite-loss": []}, ValueError, "empty list"),
        ({3: "skip"}, TypeError, "3 as a key"),
        ({"loss-spike": "skip"}, ValueError, "is ignored in this run"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_happens(recovery: Any, error: type, text: str) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(error, match=text):
        sg.watch(model, torch.optim.SGD(model.parameters()), recovery=recovery, ignore=["loss-spike"], store=False)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: Skip(limit=0), "limit=0"),
        (lambda: Skip(in_a_row=0), "in_a_row=0"),
        (lambda: LowerLr(factor=2.0), "between 0 and 1"),
        (lambda: Rollback(every=0), "every=0"),
        (lambda: Clip(norm=-1.0), "norm=-1.0"),
    ],
)
def test_limits_that_make_no_sense(made: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        made()


def test_no_policies_are_no_recovery() -> None:
    model = nn.Linear(2, 2)
    with sg.watch(model, recovery={}, store=False, sinks=[]) as watch:
        assert watch.recovery is None


def test_a_policy_alone_is_for_all_that_is_critical() -> None:
    assert [ladder.key for ladder in Plan("skip", DEFAULT).ladders] == ["critical"]


def test_names_with_underscores_are_known() -> None:
    assert policy_of("lower_lr") == policy_of("lower-lr") == LowerLr()


def test_a_late_reading_is_too_late_for_what_acts_before_the_update() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(ValueError, match="lag 1 is too late for recovery by 'skip'"):
        sg.watch(model, optimizer, recovery={"critical": "skip"}, lag=1, store=False)
    with sg.watch(model, optimizer, recovery={"critical": "rollback"}, lag=1, store=False, sinks=[]):
        pass
