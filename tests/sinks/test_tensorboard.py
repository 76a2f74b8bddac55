"""TensorBoard's own reader finds the scalars, the NaN, the findings as text, and the report beside them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seismograd.records import Reading
from seismograd.sinks import TensorBoard
from seismograd.sinks.tensorboard import _taken

from .trainings import BAD, STEPS, train

pytestmark = pytest.mark.filterwarnings("ignore:.*pkg_resources:DeprecationWarning")


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def texts(events: EventAccumulator) -> dict[str, list[str]]:
    tags = [tag for tag in events.Tags()["tensors"] if tag.endswith("/text_summary")]
    return {tag: [each.tensor_proto.string_val[0].decode() for each in events.Tensors(tag)] for tag in tags}


def test_a_sick_run(tmp_path: Path) -> None:
    watch = train(TensorBoard(tmp_path / "tb"), sick=True, store=tmp_path / "store")
    events = read(tmp_path / "tb")
    loss = events.Scalars("seismograd/loss")
    assert [each.step for each in loss] == list(range(STEPS))
    assert [math.isnan(each.value) for each in loss] == [step >= BAD for step in range(STEPS)]
    assert {"seismograd/grad/norm", "seismograd/lr/0", "seismograd/time/step"} <= set(events.Tags()["scalars"])
    told = texts(events)
    (found,) = told["seismograd/findings/nonfinite-loss/text_summary"]
    assert "critical[nonfinite-loss]" in found
    assert "The loss is NaN at step 7" in found
    assert events.Tensors("seismograd/findings/nonfinite-loss/text_summary")[0].step == BAD
    assert "**critical** after 12 steps" in told["seismograd/report/text_summary"][0]
    report = json.loads((tmp_path / "tb" / "seismograd-report.json").read_text())
    assert report["run"]["id"] == watch.id
    page = (tmp_path / "tb" / "seismograd-report.html").read_text()
    assert "nonfinite-loss" in page
    assert "<svg" in page, "the page has curves: it was made of the record"


def test_a_healthy_run_in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    watch = train("tensorboard", sick=False, store=False)
    events = read(tmp_path / "runs" / watch.id)
    assert not any("findings" in tag for tag in events.Tags()["tensors"])
    assert all(math.isfinite(each.value) for each in events.Scalars("seismograd/loss"))
    assert "**healthy** after 12 steps" in texts(events)["seismograd/report/text_summary"][0]


def test_a_writer_of_the_users_gets_it_all_and_stays_open(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "mine")) as writer:
        train(TensorBoard(writer), sick=True, store=False)
        writer.add_scalar("accuracy", 0.5, 1)
    events = read(tmp_path / "mine")
    assert len(events.Scalars("seismograd/loss")) == STEPS
    assert events.Scalars("accuracy")[0].value == 0.5
    assert "nonfinite-loss" in texts(events)["seismograd/findings/nonfinite-loss/text_summary"][0]
    assert (tmp_path / "mine" / "seismograd-report.html").exists()


def test_two_runs_at_once_do_not_share_a_folder(tmp_path: Path) -> None:
    first, second = TensorBoard(tmp_path), TensorBoard(tmp_path)
    for name, sink in (("a", first), ("b", second)):
        sink.begin({"id": name, "name": name}, lambda *_: None, lambda _: None)
        sink.write_reading(Reading(0, {"loss": 1.0}))
        assert sink.flush()
    for sink in (first, second):
        sink.close({"run": {}})
    assert (first.log_dir, second.log_dir) == (tmp_path, tmp_path / "b")
    assert not _taken


def test_a_run_after_another_does_not_go_on_with_its_curves(tmp_path: Path) -> None:
    train(TensorBoard(tmp_path), sick=True, store=False)
    mended = train(TensorBoard(tmp_path), sick=False, store=False)
    assert any("findings" in tag for tag in read(tmp_path).Tags()["tensors"])
    events = read(tmp_path / mended.id)
    assert [each.step for each in events.Scalars("seismograd/loss")] == list(range(STEPS))
    assert not any("findings" in tag for tag in events.Tags()["tensors"])
    assert (tmp_path / mended.id / "seismograd-report.json").exists()


def test_a_folder_in_which_the_script_writes_too_is_shared(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("accuracy", 0.5, 1)
    train(TensorBoard(tmp_path), sick=False, store=False)
    assert {"accuracy", "seismograd/loss"} <= set(read(tmp_path).Tags()["scalars"])


def test_a_folder_that_cannot_be_made_yet_is_no_other_one_later(tmp_path: Path) -> None:
    (tmp_path / "tb").write_text("a file is in the way")
    sink = TensorBoard(tmp_path / "tb", rank=None)
    sink._rank = 1
    sink.begin({"id": "a", "name": "a"}, lambda *_: None, lambda _: None)
    sink.write_reading(Reading(0, {"loss": 1.0}))
    assert not sink.flush()
    (tmp_path / "tb").unlink()
    sink.close({"run": {}})
    assert sink.log_dir == tmp_path / "tb" / "rank1"


def test_what_is_neither_folder_nor_writer_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a folder or a SummaryWriter, not 3"):
        TensorBoard(3)
