"""Lines of strict JSON: whole at every moment, whatever happens to the program."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seismograd as sg
import seismograd.sinks.jsonl as module
from seismograd.records import Finding, Reading, Severity, TensorStats, Where
from seismograd.sinks import JSONLines

from .trainings import BAD, STEPS, train


def lines(path: Path) -> list[dict[str, Any]]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not strict JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def of(kind: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in found if line["kind"] == kind]


def test_a_sick_run(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out.jsonl"
    whole: list[bool] = []

    def look(step: int, loss: float) -> None:
        whole.append(path.read_text().endswith("\n") and len(of("reading", lines(path))) == step + 1)

    watch = train(JSONLines(path), sick=True, store=False, each=look)
    assert all(whole), "each reading is there, whole, when its step is over"
    found = lines(path)
    assert {line["run"] for line in found} == {watch.id}
    (begin,) = of("begin", found)
    assert (begin["name"], begin["schema"], begin["rank"]) == ("training", 1, 0)
    losses = [line["scalars"]["loss"] for line in of("reading", found)]
    assert [loss == "NaN" for loss in losses] == [step >= BAD for step in range(STEPS)]
    assert {line["id"] for line in of("finding", found)} >= {"nonfinite-loss", "nonfinite-gradient"}
    assert of("finding", found)[0]["where"]["line"] > 0
    repeats = [line["count"] for line in of("change", found) if line["id"] == "nonfinite-loss"]
    assert repeats == [2, 4]
    assert found[-1]["kind"] == "end"
    assert (found[-1]["status"], found[-1]["report"]["findings"][0]["count"]) == ("critical", STEPS - BAD)


def test_a_healthy_run_appended_to_a_file_that_ends_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"kind":"reading","st')
    train(f"jsonl:{path}", sick=False, store=False)
    first, *rest = path.read_text().splitlines()
    assert first == '{"kind":"reading","st'
    kinds = [json.loads(line)["kind"] for line in rest]
    assert kinds == ["begin", *["reading"] * STEPS, "end"]


def test_events_changes_tables_and_every_nth(tmp_path: Path) -> None:
    sink = JSONLines(tmp_path / "out.jsonl", every=3, tables=True)
    sink.begin({"id": "r", "name": "n"}, lambda *_: None, lambda _: None)
    table = TensorStats(("w",), {"norm": np.array([math.inf])})
    for step in range(7):
        sink.write_reading(Reading(step, {"loss/1": 1.0}, {"gradient": table}, series=1, marks=frozenset({"pre-step"})))
    sink.write_reading(Reading(7, {"val_loss": 2.0}))
    sink.write_reading(Reading(8))
    found = Finding("loss-spike", Severity.WARNING, 7, "a jump")
    sink.write_finding(found)
    sink.update_finding(replace(found, count=3, last_step=9))
    sink.update_finding(replace(found, count=3, last_step=9, where=Where(file="a.py", line=3)))
    sink.write_event({"event_type": "recovery", "message": "skipped", "data": {"scale": math.nan}})
    sink.close({"run": {"status": "warning"}})
    told = lines(tmp_path / "out.jsonl")
    assert [line["step"] for line in of("reading", told)] == [0, 3, 6, 7]
    assert of("reading", told)[0]["tables"] == {"gradient": {"names": ["w"], "norm": ["Infinity"]}}
    assert (of("reading", told)[0]["series"], of("reading", told)[0]["marks"]) == (1, ["pre-step"])
    (change,) = of("change", told)
    assert change["where"]["line"] == 3
    assert of("event", told)[0]["data"] == {"scale": "NaN"}


@pytest.mark.parametrize(
    ("rank", "asked", "written"), [(1, 0, None), (1, 1, "out.jsonl"), (1, None, "out.rank1.jsonl")]
)
def test_only_the_rank_that_is_asked_for_writes(
    rank: int, asked: int | None, written: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    sink = JSONLines(tmp_path / "out.jsonl", rank=asked)
    sink.begin({"id": "r", "name": "n"}, lambda *_: None, lambda _: None)
    sink.write_reading(Reading(0, {"loss": 1.0}, rank=1))
    sink.close({})
    assert [path.name for path in tmp_path.glob("*.jsonl")] == ([] if written is None else [written])


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="it is a folder, give a file"):
        JSONLines(tmp_path)


def test_lines_wait_while_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT", 0.0)
    (tmp_path / "full").write_text("a file where the folder should be")
    path = tmp_path / "full" / "out.jsonl"

    def make_room(step: int, loss: float) -> None:
        if step == BAD:
            (tmp_path / "full").unlink()

    with pytest.warns(sg.SeismogradWarning) as told:
        train(f"jsonl:{path}", sick=True, store=False, each=make_room)
    (text,) = {str(each.message) for each in told}
    assert "out.jsonl cannot be written at present, training goes on (" in text
    found = lines(path)
    assert [line["step"] for line in of("reading", found)] == list(range(STEPS))
    assert (found[0]["kind"], found[-1]["kind"]) == ("begin", "end")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_said_and_costs_neither_the_training_nor_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 10)
    sink = JSONLines("/dev/full")
    with pytest.warns(sg.SeismogradWarning) as told:
        watch = train(sink, sick=True, store=False)
    assert watch.status == "critical"
    first, last = dict.fromkeys(str(each.message) for each in told)
    assert "No space left on device" in first
    assert "lines are missing from /dev/full" in last
    assert len(sink._waiting) <= 10


def test_a_line_of_which_the_disk_took_a_part_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT", 0.0)
    room = [100]

    def write(file: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        written = real(file, data[: room[0]])
        room[0] -= written
        return written

    real = module.os.write
    monkeypatch.setattr(module.os, "write", write)
    sink = JSONLines(tmp_path / "out.jsonl")
    sink.begin({"id": "r", "name": "n"}, lambda *_: None, lambda _: None)
    for step in range(5):
        sink.write_reading(Reading(step, {"loss": 1.0}))
    room[0] = 1 << 20
    sink.close({})
    assert [line["kind"] for line in lines(tmp_path / "out.jsonl")] == ["begin", *["reading"] * 5, "end"]
