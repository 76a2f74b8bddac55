"""What is told of steps that are slower than their peers."""

from __future__ import annotations

import gc
import io
from time import sleep
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import seismograd as sg
from seismograd.onlookers.resources.pace import Compiles, Pace
from seismograd.sinks import Memory

NAP = 0.3


@pytest.fixture(autouse=True)
def _read_in_full(monkeypatch):
    monkeypatch.setattr("seismograd.governor.GRACE", 1e9)


def told(between, steps=48, model=None, batches=None):
    """The last facts of a loop that does `between(step)` after each step."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2) if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    memory = Memory()
    batches = [(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))] * steps if batches is None else batches
    with sg.watch(model, optimizer, sinks=[memory], replay=False, strict=True) as watch:
        for step, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            between(step)
    facts = [reading.facts["pace"] for reading in memory.readings if "pace" in reading.facts]
    return dict(facts[-1]), watch.findings


def nothing(_step):
    pass


def test_garbage_collection_and_its_line():
    gc.unfreeze()  # all that is in the process is walked over, as it is in a script
    facts, findings = told(lambda step: gc.collect() if step % 3 == 0 else None)
    assert facts["gc"] > 0.1 * facts["seconds"]
    assert facts["gc_line"]["code"].startswith("facts, findings = told(lambda step: gc.collect()")
    (finding,) = [finding for finding in findings if finding.id == "slow-step"]
    assert finding.evidence["cause"] == "gc"


def test_sleep_is_a_stall_and_nobodys_fault():
    facts, findings = told(lambda step: sleep(NAP) if step % 16 == 15 else None, 64)
    assert facts["lost"]["stalled"] >= NAP
    assert [finding.id for finding in findings if finding.id == "slow-step" and finding.severity != "info"] == []


def test_waiting_for_other_ranks_does_not_make_a_step_slow():
    """As where weights are averaged every eighth step."""
    pace = Pace(SimpleNamespace(), SimpleNamespace(collected_at=None))
    for step in range(64):
        waited = 0.2 if step % 8 == 7 else 0.0
        usual = {"step": 0.01 + waited, "watch": 0.001, "gc": 0.0, "forward": 0.004, "backward": 0.004}
        pace.timed({**usual, "collective": waited, "rest": 0.001})
    pace.finished()
    facts = pace.facts({}, 63)
    assert facts["lost"] == {}
    assert facts["seconds"] > 1.0


def test_checkpoints_and_evaluation_do_not_make_a_step_slow():
    class Napping(nn.Linear):
        def forward(self, x):
            if not torch.is_grad_enabled():
                sleep(NAP)
            return super().forward(x)

    model = Napping(3, 2)

    def between(step):
        if step % 12 == 11:
            torch.save(model.state_dict(), io.BytesIO())
            with torch.no_grad():
                model(torch.randn(4, 3))

    facts, findings = told(between, model=model)
    assert facts["between"]["evaluation"] >= NAP
    assert facts["between"]["checkpoint"] > 0
    assert "size" not in facts["lost"]
    assert [finding.severity for finding in findings if finding.id == "slow-step"] in ([], ["info"])


def test_a_larger_batch():
    class ByLength(nn.Linear):
        def forward(self, x):
            sleep(0.002 * len(x))  # far above what a busy machine adds
            return super().forward(x)

    def batches():
        for step in range(64):
            count = 400 if step % 12 == 11 else 8
            yield torch.randn(count, 3), torch.randint(0, 2, (count,))

    facts, findings = told(nothing, model=ByLength(3, 2), batches=batches())
    assert facts["lost"]["size"] > 0.5 * sum(facts["lost"].values())
    assert facts["sizes"] == [24, 1200]
    (finding,) = [finding for finding in findings if finding.id == "slow-step"]
    assert (finding.severity, finding.evidence["cause"]) == ("info", "size")


class Halting(Dataset):
    """Some samples take far longer than the others."""

    def __init__(self, first=False):
        self.first = first

    def __len__(self):
        return 20 if self.first else 64

    def __getitem__(self, index):
        if index == 0 if self.first else index % 12 == 11:
            sleep(NAP)
        return torch.randn(3), index % 2


def test_a_sample_that_takes_long():
    facts, _ = told(nothing, batches=DataLoader(Halting()))
    assert facts["lost"]["data"] >= NAP


def test_the_first_batch_of_a_pass():
    loader = DataLoader(Halting(first=True))
    facts, _ = told(nothing, batches=(batch for _ in range(5) for batch in loader))
    assert facts["lost"]["pass"] >= NAP
    assert facts["lost"].get("data", 0.0) < facts["lost"]["pass"]


def test_recompilations_with_their_reason():
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    model = nn.Linear(3, 2)
    compiled = torch.compile(model, backend="eager", dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    memory = Memory()
    with sg.watch(model, optimizer, sinks=[memory], replay=False, strict=True) as watch:
        for step in range(30):
            count = 4 + min(step, 6)
            optimizer.zero_grad()
            F.cross_entropy(compiled(torch.randn(count, 3)), torch.randint(0, 2, (count,))).backward()
            optimizer.step()
    facts = [reading.facts["pace"] for reading in memory.readings if "pace" in reading.facts][-1]
    assert facts["recompiles"]["count"] == 6
    assert "size mismatch" in facts["recompiles"]["reason"]
    (finding,) = [finding for finding in watch.findings if finding.id == "slow-step"]
    assert (finding.severity, finding.evidence["cause"]) == ("warning", "recompile")


def test_a_first_compilation_is_none_again(monkeypatch):
    compiles = Compiles()
    assert compiles.since() == 0.0
    assert compiles.told() is None
    monkeypatch.setitem(__import__("sys").modules, "torch._dynamo.utils", None)
    assert compiles.since() == 0.0


def test_a_plain_loop_tells_next_to_nothing():
    facts, findings = told(nothing, 40)
    assert facts["between"] == {}
    assert facts["recompiles"] is None
    assert [finding.id for finding in findings if finding.id == "slow-step" and finding.severity != "info"] == []
