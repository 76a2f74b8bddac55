"""A stored run is judged again: as live where its readings are whole, and at a told resolution where they are not."""

from __future__ import annotations

import importlib
import json
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.config import Config
from seismograd.detectors import DEFAULT, by_id
from seismograd.records import Finding, Reading, Severity, TensorStats, strict
from seismograd.store import Recorder, Run, open_store
from seismograd.store.schema import url_of
from seismograd.store.spans import Span, merged, missing, shared, spans_of

sys.path.insert(0, str(Path(__file__).parents[1]))
for _ward in ("sick_numerics", "sick_rates", "sick_order", "sick_membership", "healthy_basics", "healthy_generative"):
    importlib.import_module(f"patients.{_ward}")
from patients.register import HEALTHY, SICK, Patient  # noqa: E402


@contextmanager
def stored(where: Path | str, name: str = "last") -> Iterator[Run]:
    with open_store(where) as store:
        yield store.run(name)


def record(
    where: Path | str,
    readings: Sequence[Reading],
    *,
    run: str = "made",
    findings: Sequence[Finding] = (),
    limit: int = 200 << 20,
    status: str = "healthy",
    events: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Hand-made readings, written as a run would be, rank by rank."""
    for rank in sorted({reading.rank for reading in readings}):
        own = [reading for reading in readings if reading.rank == rank]
        steps = max(reading.step for reading in own) + 1
        state = {"status": status, "level": "advanced", "steps": steps}
        recorder = Recorder(url_of(where), run, run, rank=rank, limit=limit, state=lambda state=state: state)
        for at, reading in enumerate(own):
            recorder.write_reading(reading)
            if at % 2000 == 1999:
                assert recorder.flush(60)
        for finding in findings:
            if finding.rank == rank:
                recorder.write_finding(finding)
        for event in events:
            recorder.write_event(event)
        assert recorder.flush(60)
        recorder.close({"schema": 1, "run": {"id": run}, "findings": []})


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 5) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()


def told(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [strict(finding.to_dict()) for finding in findings]


def calm(steps: int, loss: Callable[[int], float] | None = None, **more: Any) -> list[Reading]:
    """A run that learns a little, with some noise."""
    noise = np.random.default_rng(0).standard_normal((steps, 2))
    loss = loss or (lambda step: 2.0 * math.exp(-5.0 * step / steps) + 0.3 + 0.02 * noise[step, 0])
    return [
        Reading(step, {"loss": loss(step), "grad/norm": 1.0 + 0.1 * noise[step, 1], "lr/0": 0.1}, **more)
        for step in range(steps)
    ]


# -- as live -----------------------------------------------------------------------------------------------------------

PATIENTS = (
    *("log_of_zero", "sqrt_at_zero", "exploding_rnn_sine", "sgd_far_too_fast", "nothing_clears"),
    *("bfloat16_tiny_rate", "logistic_regression", "gan_hinge"),
)


@pytest.mark.parametrize("name", PATIENTS)
def test_the_verdict_is_the_live_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patient: Patient = SICK.get(name) or HEALTHY[name]
    monkeypatch.setattr(sg, "watch", partial(sg.watch, store=tmp_path, strict=True))
    watch = patient.run()
    watch.close()
    with stored(tmp_path) as run:
        verdict = run.check()
    assert run.id == watch.id
    assert told(verdict.findings) == told(watch.findings)
    assert verdict.status == watch.status == run.status
    assert verdict.whole
    assert (verdict.gone, verdict.new, verdict.notes) == ((), (), ())
    if patient.expects:
        assert patient.expects & {finding.id for finding in verdict.findings}


def test_what_only_the_live_run_could_find_is_there_too(tmp_path: Path) -> None:
    class Broken:
        def write_reading(self, reading: Reading) -> None:
            raise RuntimeError("no more paper")

        write_finding = update_finding = close = write_reading

    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watch = sg.watch(model, optimizer, sinks=[Broken()], store=tmp_path)
    with pytest.warns(RuntimeWarning, match="no more paper"):
        train(model, optimizer)
    watch.close()
    assert [finding.id for finding in watch.findings] == ["blind-probe"]
    with stored(tmp_path) as run:
        assert told(run.check().findings) == told(watch.findings)
        assert run.check(ignore="blind-probe").findings == ()


def test_what_the_run_ignored_is_ignored_again(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[], store=tmp_path, ignore=("missing-zero-grad", "loss-plateau")) as watch:
        for _ in range(30):  # nothing clears the gradients
            model(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
    with stored(tmp_path) as run:
        assert told(run.check().findings) == told(watch.findings)
        assert "missing-zero-grad" in {finding.id for finding in run.check(DEFAULT).findings}


def test_a_crash_stays_one(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with suppress(ZeroDivisionError), sg.watch(model, optimizer, sinks=[], store=tmp_path):
        train(model, optimizer)
        1 / 0
    with stored(tmp_path) as run:
        assert run.check().status == "crashed"


def test_what_a_preflight_found_is_found_again(tmp_path: Path) -> None:
    before = Finding("bad-initialization", Severity.WARNING, 0, "all weights are zero", evidence={"gain": 0.0})
    event = {"event_type": "preflight", "message": "13 checks", "preflight": {"findings": told([before])}}
    record(tmp_path, calm(100), findings=[before], events=[event], status="warning")
    with stored(tmp_path) as run:
        verdict = run.check()
    assert told(verdict.findings) == told([before])
    assert verdict.status == "warning"
    assert verdict.gone == ()


def test_ranks_are_judged_each_for_itself(tmp_path: Path) -> None:
    sick = [replace(each, rank=1) for each in calm(60)]
    sick[40] = Reading(40, {"loss": math.nan, "grad/norm": math.nan, "lr/0": 0.1}, rank=1)
    record(tmp_path, [*calm(60), *sick])
    with stored(tmp_path) as run:
        found = run.check().findings
    assert {(finding.id, finding.rank, finding.step) for finding in found} == {
        (each, 1, 40) for each in ("nonfinite-loss", "nonfinite-gradient")
    }


def test_it_is_the_same_on_a_server(where: str) -> None:
    sick = calm(100)
    sick[60] = replace(sick[60], scalars={**sick[60].scalars, "loss": math.inf})
    record(where, sick)
    record(where, calm(100), run="sound")
    with open_store(where) as store:
        verdict = store.run("made").check()
        found = store.run("sound").compare(store.run("made"))
    assert [(each.id, each.step) for each in verdict.findings] == [("nonfinite-loss", 60)]
    assert found.parted is not None
    assert (found.parted.step, found.parted.quantity, found.parted.values[1]) == (60, "loss", math.inf)


# -- other limits ------------------------------------------------------------------------------------------------------


def halted(steps: int) -> list[Reading]:
    """The learning rate is zero from step 100 on."""
    return [replace(each, scalars={**each.scalars, "lr/0": 0.1 * (each.step < 100)}) for each in calm(steps)]


def test_other_limits_make_another_verdict(tmp_path: Path) -> None:
    record(tmp_path, halted(300))
    with stored(tmp_path) as run:
        assert [(each.id, each.step) for each in run.check().findings] == [("lr-jump", 149)]
        lenient = replace(by_id("lr-jump"), dead=10_000)  # type: ignore[type-var]
        assert run.check([lenient]).findings == ()
        config = Config(limits={"lr-jump": {"dead": 10_000}}, path=tmp_path / "pyproject.toml")
        verdict = run.check(config=config)
        assert [each.id for each in verdict.findings] == []
        with pytest.raises(ValueError, match="has no limit 'ded'"):
            run.check(config=Config(limits={"lr-jump": {"ded": 1}}, path=tmp_path / "pyproject.toml"))


def test_the_limits_of_pyproject_are_taken_without_being_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "runs", halted(300), findings=[Finding("lr-jump", Severity.WARNING, 149, "it is zero")])
    (tmp_path / "pyproject.toml").write_text("[tool.seismograd.limits.lr-jump]\ndead = 10000\n")
    monkeypatch.chdir(tmp_path)
    with stored(tmp_path / "runs") as run:
        verdict = run.check()
    assert verdict.findings == ()
    assert [finding.id for finding in verdict.gone] == ["lr-jump"]
    assert verdict.notes == ("lr-jump of step 149 was found live, and not again with these limits",)


def test_a_detector_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    class Fails:
        id, needs, follows = "fails", ("loss",), ()

        def start(self) -> Any:
            raise RuntimeError("it does not start")

    record(tmp_path, halted(300))
    with stored(tmp_path) as run:
        verdict = run.check([*DEFAULT, Fails()])
    assert [each.id for each in verdict.findings] == ["lr-jump"]
    assert verdict.notes == ("detector fails failed (RuntimeError: it does not start)",)


# -- beyond what is kept whole -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20,000 steps of which a little is kept whole; at 12,345 a value was not finite."""
    where = tmp_path_factory.mktemp("long")
    readings = calm(20_000)
    table = TensorStats(("a", "b"), {"norm": np.ones(2)})
    readings = [replace(each, tensors={"gradient": table}) if each.step % 100 == 0 else each for each in readings]
    at = readings[12_345]
    readings[12_345] = replace(at, scalars={**at.scalars, "loss": math.nan})
    found = [
        Finding("missing-zero-grad", Severity.INFO, 9_000, "nothing clears the gradients"),
        Finding("loss-spike", Severity.INFO, 9_500, "it jumped"),
    ]
    record(where, readings, limit=400_000, findings=found)
    return where


def test_it_says_at_what_resolution_it_judged(long: Path) -> None:
    with stored(long) as run:
        verdict = run.check()
        whole = run.whole
    assert not verdict.whole
    assert verdict.spans[0].start == 0
    assert verdict.spans[-1].stop == 19_999
    assert {(span.start, span.stop) for span in verdict.spans if span.whole} == set(whole)
    thin = [span for span in verdict.spans if span.width > 1]
    assert thin
    assert all(span.width in (8, 64, 512) for span in thin)
    for span in thin:
        assert any(str(span) in note and f"one reading in {span.width} steps" in note for note in verdict.notes)


def test_a_value_that_was_not_finite_does_not_disappear_with_age(long: Path) -> None:
    with stored(long) as run:
        verdict = run.check()
    (finding,) = (each for each in verdict.findings if each.id == "nonfinite-loss")
    width = next(span.width for span in verdict.spans if span.start <= 12_345 <= span.stop)
    assert width > 1
    assert 12_345 <= finding.step < 12_345 + width
    assert verdict.status == "critical"
    assert "nonfinite-loss" in {each.id for each in verdict.new}


def test_what_cannot_be_judged_any_more_is_as_the_live_run_found_it(long: Path) -> None:
    with stored(long) as run:
        verdict = run.check()
    assert [each.id for each in verdict.kept] == ["missing-zero-grad"]  # it needs facts, which are gone there
    assert "missing-zero-grad" in {each.id for each in verdict.findings}
    assert [each.id for each in verdict.gone] == ["loss-spike"]
    notes = "\n".join(verdict.notes)
    assert "missing-zero-grad of step 9,000 is as the live run found it: what it was judged on is gone" in notes
    assert "loss-spike of step 9,500 was found live, and not again, where one reading in" in notes


def test_a_thinned_gan_is_still_two_series(tmp_path: Path) -> None:
    readings = []
    for each in calm(20_000):
        for number in (0, 1):
            loss = each.scalars["loss"] if number == 0 or each.step < 15_000 else math.inf
            norm = each.scalars["grad/norm"]
            scalars = {f"loss/{number}": loss, f"grad/norm/{number}": norm, f"lr/{number}": 0.1}
            readings.append(Reading(each.step, scalars, series=number))
    record(tmp_path, readings, limit=500_000)
    with stored(tmp_path) as run:
        verdict = run.check()
    assert not verdict.whole
    assert {(each.id, each.evidence["series"]) for each in verdict.findings} == {("nonfinite-loss", 1)}
    assert abs(verdict.findings[0].step - 15_000) < 512


def test_readings_without_their_tables_are_judged_at_full_rate(tmp_path: Path) -> None:
    names = tuple(f"layer{at}.weight" for at in range(60))
    noise = np.random.default_rng(1)
    readings = [
        replace(each, tensors={"gradient": TensorStats(names, {"norm": noise.random(60), "max": noise.random(60)})})
        for each in halted(6000)
    ]
    record(tmp_path, readings, limit=4_000_000)
    with stored(tmp_path) as run:
        verdict = run.check()
        bare = [span for span in run.kept() if not span.whole]
    assert bare
    assert [span for span in verdict.spans if not span.whole and span.width == 1] == bare
    assert [(each.id, each.step) for each in verdict.findings] == [("lr-jump", 149)]
    assert any("without tables were judged" in note for note in verdict.notes)


def test_the_verdict_is_strict_json(long: Path) -> None:
    with stored(long) as run:
        verdict = run.check()
    data = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert data["status"] == "critical"
    assert data["whole"] is False
    assert data["findings"] == told(verdict.findings)
    assert data["kept"] == [{"id": "missing-zero-grad", "severity": "info", "step": 9000, "rank": 0}]
    assert data["spans"][0] == verdict.spans[0].to_dict()


def test_what_was_never_recorded_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seismograd.store.recorder.MOST", 200)
    recorder = Recorder(url_of(tmp_path), "run", "run", state=lambda: {"steps": 6000, "status": "healthy"})
    closing = threading.Event()
    monkeypatch.setattr(recorder, "_listen", closing.wait)  # what is left is one batch, the last
    for reading in calm(6000):
        recorder.write_reading(reading)
    threading.Timer(0.2, closing.set).start()
    recorder.close({"schema": 1, "run": {"id": "run"}, "findings": []})
    assert recorder.thinned > 0
    with stored(tmp_path) as run:
        verdict = run.check()
        assert any(note.startswith("not everything of run was recorded: ") for note in run.compare(run).notes)
    assert not verdict.whole
    assert f"{recorder.thinned:,} readings came faster" in (verdict.unrecorded or "")
    assert any(note.startswith("not everything was recorded: ") for note in verdict.notes)


# -- spans -------------------------------------------------------------------------------------------------------------


def test_spans_are_merged_shared_and_missing() -> None:
    assert merged([(5, 9), (0, 4), (20, 30), (25, 26)]) == [(0, 9), (20, 30)]
    assert shared([(0, 10), (20, 30)], [(5, 25)]) == [(5, 10), (20, 25)]
    assert missing(0, 40, [(5, 9), (20, 30)]) == [(0, 4), (10, 19), (31, 40)]
    assert missing(0, 9, [(0, 9)]) == []
    assert missing(3, 5, []) == [(3, 5)]


def test_points_become_spans_of_one_density() -> None:
    first = np.array([0, 8, 16, 24, 25, 26])
    last = np.array([7, 15, 23, 24, 25, 26])
    assert spans_of(first, last) == (Span(0, 23, 8, False), Span(24, 26))
    assert spans_of(first[:0], last[:0]) == ()
    assert spans_of(np.arange(0, 100, 4), np.arange(0, 100, 4)) == (Span(0, 96, 4, False),)
    assert str(Span(0, 23, 8, False)) == "steps 0 to 23 at one reading in 8 steps"
    assert str(Span(5, 5)) == "step 5"
    assert str(Span(0, 9, 1, False)) == "steps 0 to 9 without tables"
