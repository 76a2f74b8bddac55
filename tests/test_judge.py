"""The judge: what is merged, counted, linked, ordered, dropped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from seismograd.detectors import DEFAULT
from seismograd.judge import Judge, judge_all
from seismograd.records import Finding, Origin, Reading, Severity, TensorStats, Where


@dataclass(frozen=True)
class Says:
    """Finds what the reading's scalar says: 0 info, 1 warning, 2 critical."""

    id: ClassVar[str] = "says-so"
    needs: ClassVar[tuple[str, ...]] = ("said",)
    follows: ClassVar[tuple[str, ...]] = ()

    def start(self):
        return Echo()


class Echo:
    def check(self, reading):
        severity = list(Severity)[int(reading.scalars["said"])]
        return Finding(
            "says-so", severity, reading.step, f"said at {reading.step}", reading.rank, evidence={"at": reading.step}
        )


@dataclass(frozen=True)
class Fails(Says):
    id: ClassVar[str] = "fails-always"

    def start(self):
        return self

    def check(self, reading):
        raise ZeroDivisionError("inside")


def cause(name, *, follows=()):
    return type(name, (Says,), {"id": name, "follows": tuple(follows)})()


def finding(name, step, severity=Severity.CRITICAL, **evidence):
    return Finding(name, severity, step, name, evidence=evidence)


def test_repeats_are_one_finding_that_tells_the_worst():
    judge = Judge([Says()])
    for step, said in enumerate([1, 1, 2, 0]):
        judge.observe(Reading(step, {"said": said}))
    (only,) = judge.findings
    assert (only.step, only.last_step, only.count) == (0, 3, 4)
    assert only.severity is Severity.CRITICAL
    assert only.message == "said at 2"
    assert judge.status == "critical"


def test_ranks_and_series_are_apart():
    judge = Judge([Says()])
    for rank, series in [(0, None), (1, None), (0, 0), (0, 1)]:
        judge.observe(Reading(0, {"said" if series is None else f"said/{series}": 1}, rank=rank, series=series))
    assert {(f.rank, f.evidence.get("series")) for f in judge.findings} == {(0, None), (1, None), (0, 0), (0, 1)}


def test_called_only_with_what_it_needs():
    judge = Judge([Says()])
    assert judge.observe(Reading(0, {"loss": 1.0})) == []
    assert judge.observe(Reading(1, {"loss": 1.0, "said": 1}))
    assert judge.status == "warning"


def test_ignored_ids_are_not_started():
    assert Judge([Says()], ignore=["says-so"]).observe(Reading(0, {"said": 2})) == []


def test_a_failing_detector_is_told_once_and_dropped():
    failures = []
    judge = Judge([Fails(), Says()], on_failure=lambda part, error: failures.append((part, str(error))))
    for step in range(3):
        judge.observe(Reading(step, {"said": 1}))
    assert failures == [("detector fails-always", "inside")]
    assert judge.findings[0].count == 3
    with pytest.raises(ZeroDivisionError):
        Judge([Fails()]).observe(Reading(0, {"said": 1}))


def test_because_points_to_the_root_whenever_it_is_found():
    root, middle, last = cause("root"), cause("middle", follows=["root"]), cause("last", follows=["root", "middle"])
    changes = []
    judge = Judge([root, middle, last], on_change=changes.append)
    judge.add(finding("middle", 3))
    judge.add(finding("last", 4))
    assert {f.id: f.evidence.get("because") for f in judge.findings} == {"middle": None, "last": "middle"}
    judge.add(finding("root", 5, Severity.WARNING))
    assert [f.id for f in judge.findings] == ["root", "middle", "last"], "a cause stands above what it caused"
    assert {f.id: f.evidence.get("because") for f in judge.findings} == {"root": None, "middle": "root", "last": "root"}
    assert {f.id for f in changes} == {"middle", "last"}


def test_a_cause_that_was_given_stays():
    judge = Judge([cause("root"), cause("effect", follows=["root"])])
    judge.add(finding("root", 0))
    assert judge.add(finding("effect", 1, because="the weather")).evidence["because"] == "the weather"


def test_causes_of_another_series_explain_nothing():
    judge = Judge([cause("root"), cause("effect", follows=["root"])])
    judge.add(finding("root", 0, series=0))
    assert "because" not in judge.add(finding("effect", 1, series=1)).evidence


def test_order_is_severity_then_step():
    judge = Judge([])
    for name, step, severity in [("a", 5, "warning"), ("b", 9, "critical"), ("c", 1, "info"), ("d", 2, "critical")]:
        judge.add(finding(name, step, Severity(severity)))
    assert [f.id for f in judge.findings] == ["d", "b", "a", "c"]


def bad(*kinds, step, loss=1.0, norm=1.0):
    tensors = {}
    if "parameter" in kinds:
        tensors["nonfinite_parameter"] = TensorStats(
            ("w",), {"nan": np.ones(1), "inf": np.zeros(1), "size": np.ones(1)}
        )
    return Reading(step, {"loss": loss, "grad/norm": norm}, tensors)


def story(readings):
    return {f.id: f.evidence.get("because") for f in judge_all(readings, DEFAULT)}


def test_a_loss_that_is_not_finite_is_told_from_the_loss():
    readings = [
        bad(step=0),
        bad(step=1, loss=math.nan, norm=math.nan),
        bad("parameter", step=2, loss=math.nan, norm=math.nan),
    ]
    assert story(readings) == {
        "nonfinite-loss": None,
        "nonfinite-gradient": "nonfinite-loss",
        "nonfinite-parameter": "nonfinite-loss",
    }


def test_a_gradient_that_is_not_finite_is_told_from_the_gradient():
    readings = [bad(step=0), bad(step=1, norm=math.inf), bad("parameter", step=2, loss=math.nan, norm=math.nan)]
    assert story(readings) == {
        "nonfinite-gradient": None,
        "nonfinite-parameter": "nonfinite-gradient",
        "nonfinite-loss": "nonfinite-gradient",
    }


def test_weights_that_were_bad_from_the_start_come_first():
    readings = [bad("parameter", step=0, loss=math.nan, norm=math.nan)]
    assert story(readings) == {
        "nonfinite-parameter": None,
        "nonfinite-loss": "nonfinite-parameter",
        "nonfinite-gradient": "nonfinite-parameter",
    }


def test_a_finding_that_explains_itself_has_no_cause_and_is_one():
    judge = Judge([cause("first"), cause("second", follows=["first"]), cause("third", follows=["first", "second"])])
    judge.add(finding("first", 1))
    judge.add(finding("second", 2, because=None))
    judge.add(finding("third", 3))
    found = {f.id: f.evidence.get("because") for f in judge.findings}
    assert found == {"first": None, "second": None, "third": "first"}


def test_a_place_that_becomes_known_later_is_taken_up():
    judge = Judge([Says()])
    judge.add(finding("says-so", 1, note="unknown"))
    located = Finding("says-so", Severity.CRITICAL, 2, "here", where=Where(file="a.py"), evidence={"origin": "loss"})
    judge.add(located)
    (only,) = judge.findings
    assert (only.step, only.last_step, only.count) == (1, 2, 2)
    assert (only.message, only.where.file) == ("here", "a.py")
    judge.add(Finding("says-so", Severity.CRITICAL, 3, "there", evidence={"origin": "loss"}))
    assert judge.findings[0].message == "here", "the first place is kept"


def test_what_follows_from_another_keeps_its_cause_though_it_has_an_origin_later():
    judge = Judge([Says()])
    judge.add(finding("says-so", 1, because="other"))
    judge.add(finding("says-so", 2, origin="loss", because=None))
    assert judge.findings[0].evidence == {"because": "other"}


def test_an_event_is_one_root_and_the_others_follow():
    log = Origin("forward", Where("head", op="aten.log"), value=-math.inf)
    judge = Judge(DEFAULT)
    judge.observe(Reading(12, {"loss": math.inf, "grad/norm": math.nan}, origin=log))
    found = {f.id: f.evidence.get("because") for f in judge.findings}
    assert found == {
        "nonfinite-activation": None,
        "nonfinite-loss": "nonfinite-activation",
        "nonfinite-gradient": "nonfinite-activation",
    }
    assert judge.findings[0].id == "nonfinite-activation"


def test_a_higher_revision_is_told_anew_and_a_lower_is_not():
    judge = Judge([])
    for revision, text in [(0, "first"), (2, "more"), (1, "less"), (2, "again")]:
        judge.add(Finding("rank-desync", Severity.CRITICAL, 3, text, 1, evidence={"revision": revision, text: True}))
    (only,) = judge.findings
    assert (only.message, only.count, only.evidence["revision"]) == ("more", 4, 2)
    assert set(only.evidence) == {"revision", "first", "more"}
    judge.add(Finding("plain", Severity.INFO, 3, "first"))
    judge.add(Finding("plain", Severity.INFO, 4, "second"))
    assert [f.message for f in judge.findings if f.id == "plain"] == ["first"]


def test_what_is_found_between_ranks_is_of_all_of_them():
    judge = Judge([cause("rank-a"), cause("rank-b", follows=("rank-a",)), cause("plain", follows=("rank-a", "other"))])
    judge.add(Finding("rank-b", Severity.CRITICAL, 5, "b", rank=2))
    judge.add(Finding("plain", Severity.WARNING, 5, "p", rank=2))
    judge.add(Finding("rank-a", Severity.WARNING, 3, "a", rank=1))
    because = {f.id: f.evidence.get("because") for f in judge.findings}
    assert because == {"rank-a": None, "rank-b": "rank-a", "plain": None}


def test_values_that_are_not_finite_spread_over_ranks_only_where_that_was_seen():
    def at(name, step, rank, **evidence):
        return Finding(name, Severity.CRITICAL, step, name, rank, evidence=evidence)

    located = at("nonfinite-loss", 12, 1, origin="loss")
    seen = at("nonfinite-gradient", 12, 0)
    updated = at("nonfinite-parameter", 13, 0, origin="optimizer")
    own = at("nonfinite-input", 13, 2, origin="input")
    before = at("nonfinite-gradient", 3, 3)
    between = at("rank-nonfinite", 12, 1, origin="loss", culprits=[1])
    rest = [located, seen, updated, own, before]
    for order in ([*rest, between], [between, *rest], [seen, between, *reversed(rest)]):
        judge = Judge(DEFAULT)
        for each in order:
            if each.key not in {f.key for f in judge.findings}:
                judge.add(each)
        because = {(f.id, f.rank): f.evidence.get("because") for f in judge.findings}
        assert because == {
            ("nonfinite-loss", 1): None,
            ("rank-nonfinite", 1): "nonfinite-loss",
            ("nonfinite-gradient", 0): "rank-nonfinite",
            ("nonfinite-parameter", 0): "rank-nonfinite",
            ("nonfinite-input", 2): None,
            ("nonfinite-gradient", 3): None,
        }
    judge = Judge(DEFAULT)
    for each in rest:
        judge.add(each)
    assert {f.evidence.get("because") for f in judge.findings if f.rank in (2, 3)} == {None}


@pytest.mark.parametrize(
    ("cause", "effect"),
    [
        ("unshuffled-data", "loss-explosion"),
        ("unshuffled-data", "gradient-explosion"),
        ("gradient-vanishing", "constant-output"),
    ],
)
def test_the_fault_stands_before_what_it_does_to_the_numbers(cause, effect):
    judge = Judge(DEFAULT)
    judge.add(Finding(effect, Severity.CRITICAL, 5, "the output says it, or the loss"))
    judge.add(Finding(cause, Severity.WARNING, 20, "the fault"))
    assert [(f.id, f.evidence.get("because")) for f in judge.findings] == [(cause, None), (effect, cause)]
