"""The verdict on hand-made figures, and the sums on hand-made events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from seismograd.profiling.reading import add_up
from seismograd.profiling.result import LineCost, ModuleCost, OpCost, percent, seconds, table
from seismograd.profiling.tables import summarise
from seismograd.profiling.verdict import Figures, sentences

CALM = Figures(1.0, 10, [OpCost("aten::mm", 100, 0.05, 0.05)], [], [])


def said(**changes: Any) -> str:
    return " ".join(sentences(replace(CALM, **changes)))


def test_nothing_stands_out() -> None:
    assert said() == "Nothing stands out: the dearest op is `aten::mm` with 5 %."


def test_the_dearest_module_with_its_op() -> None:
    module = ModuleCost("encoder.3.attn", "Attention", 10, 0.2, 0.4, 0.61, 0.61, op="aten::bmm")
    assert "61 % of the time is in `encoder.3.attn` (Attention)" in said(modules=[module])
    assert "`aten::bmm`" in said(modules=[module])
    assert "Nothing stands out" in said(modules=[replace(module, share=0.149)])


def test_modules_that_are_alike_count_together() -> None:
    layers = [ModuleCost(f"layers.{at}.attn", "Attention", 1, 0.1, 0.1, 0.14, 0.14, op="aten::bmm") for at in range(4)]
    assert "56 % of the time is in the 4 modules `layers.*.attn` (Attention)" in said(modules=layers)
    convs = [ModuleCost(str(at), "Conv2d", 1, 0.1, 0.1, 0.2, 0.2 + at / 100) for at in (0, 2)]
    assert "22 % of the time is in `2` (Conv2d)" in said(modules=convs)


def test_the_weightiest_comes_first() -> None:
    told = sentences(replace(CALM, phases={"data": 0.25, "optimizer": 0.6}))
    assert [text.split()[1] for text in told] == ["optimizer", "loop"]


def test_the_dearest_op_where_no_module_is() -> None:
    op = OpCost("aten::sort", 7, 0.4, 0.4, line="train.py:9")
    assert "40 % of the time is in `aten::sort`, called 7 times, mostly at train.py:9" in said(ops=[op])


def test_waiting_for_data() -> None:
    assert "waits 35 % of the time for its DataLoader" in said(phases={"data": 0.35})
    assert "give it `num_workers`" in said(phases={"data": 0.35})
    assert "more workers" in said(phases={"data": 0.35}, workers=True)
    assert "DataLoader" not in said(phases={"data": 0.19})


def test_a_dear_line_and_an_optimizer() -> None:
    line = LineCost("train.py", 31, "x = augment(x)", 10, 0.5, 0.5)
    assert "The dearest line is train.py:31 with 50 %: `x = augment(x)`." in said(lines=[line])
    told = said(lines=[replace(line, code="opt.step()")], phases={"optimizer": 0.49})
    assert "optimizer takes 49 %" in told
    assert "dearest line" not in told, "it is said once"


def test_copies() -> None:
    assert "Copies of data take 12 % (`aten::copy_`, mostly at t.py:3)" in said(
        ops=[OpCost("aten::copy_", 9, 0.12, 0.12, line="t.py:3")]
    )


def test_many_tiny_ops() -> None:
    ops = [OpCost("aten::add", 10_000, 0.1, 0.1)]
    assert "10,000 ops take 10 us each, and Python 60 % of the time" in said(ops=ops, between=0.6)
    assert "each" not in said(ops=ops, between=0.1)
    assert "each" not in said(ops=[OpCost("aten::mm", 10_000, 0.9, 0.1)], between=0.6)


def test_reading_a_value_counts_where_it_waits_for_a_device() -> None:
    ops = [OpCost("aten::mm", 10, 0.1, 0.1, 0.5, 0.1), OpCost("aten::item", 10, 0.001, 0.001, line="train.py:12")]
    assert "item" not in said(ops=ops)
    told = said(ops=ops, device="cuda", device_busy=0.9)
    assert "`.item()`" in told
    assert "10 times, mostly at train.py:12" in told
    assert "item" not in said(ops=ops, device="cuda", device_busy=0.9, steps=100), "once in a while is fine"


def test_a_device_that_waits_and_one_that_does_not_use_its_cores() -> None:
    ops = [OpCost("aten::mm", 10, 0.1, 0.1, 0.5, 0.1)]
    assert "cuda device was idle 40 % of the time" in said(ops=ops, device="cuda", device_busy=0.6)
    assert "idle" not in said(ops=ops, device="cuda", device_busy=0.9)
    assert "set_float32_matmul_precision" in said(ops=ops, device="cuda", device_busy=0.9, full_precision=0.5)
    assert "pin_memory" in said(ops=ops, device="cuda", device_busy=0.9, copies_to_device=0.2)


def test_no_ops() -> None:
    assert said(ops=[]) == "No op of torch ran on this thread while it was recorded."


@dataclass
class Event:
    """As torch's raw events answer."""

    label: str
    start: int
    length: int
    thread: int = 1
    sequence: int = -1
    forward_thread: int = 0
    correlation: int = 0
    linked: int = 0
    size: int = 0
    device: str = "CPU"
    kinds: tuple[str, ...] = ()

    def name(self) -> str:
        return self.label

    def start_ns(self) -> int:
        return self.start

    def duration_ns(self) -> int:
        return self.length

    def start_thread_id(self) -> int:
        return self.thread

    def sequence_nr(self) -> int:
        return self.sequence

    def fwd_thread_id(self) -> int:
        return self.forward_thread

    def correlation_id(self) -> int:
        return self.correlation

    def linked_correlation_id(self) -> int:
        return self.linked

    def nbytes(self) -> int:
        return self.size

    def flops(self) -> int:
        return 0

    def shapes(self) -> list[list[int]]:
        return [[2, 3], []]

    def dtypes(self) -> list[str]:
        return list(self.kinds)

    def device_type(self) -> Any:
        return SimpleNamespace(name=self.device)


MARKS = {"Net": ("Net", "Net", "Net"), "fc (Linear)": ("fc", "Linear", "Net")}
STEP = [
    Event("enumerate(DataLoader)#_Iter.__next__", 0, 100),
    Event("aten::stack", 10, 50),
    Event("Net", 100, 200),
    Event("fc (Linear)", 120, 100),
    Event("aten::linear", 130, 80, sequence=5, correlation=1),
    Event("[memory]", 140, 0, size=64),
    Event("aten::addmm", 150, 40, sequence=5, correlation=2, kinds=("float", "float")),
    Event("[memory]", 160, 0, size=-64),
    Event("autograd::engine::evaluate_function: AddmmBackward0", 400, 100, thread=2, sequence=5, forward_thread=1),
    Event("aten::mm", 420, 60, thread=2, correlation=3),
    Event("Optimizer.step#SGD.step", 600, 50),
    Event("aten::add_", 610, 20),
]


def test_own_times_phases_and_modules() -> None:
    totals = add_up(STEP, MARKS)
    assert {name: op.own for name, op in totals.ops.items()} == {
        "aten::stack": 50,
        "aten::linear": 40,
        "aten::addmm": 40,
        "autograd::engine::evaluate_function: AddmmBackward0": 40,
        "aten::mm": 60,
        "aten::add_": 20,
    }
    assert totals.phases == {"data": 100, "forward": 200, "backward": 100, "optimizer": 50}
    fc, net = totals.modules["fc"], totals.modules["Net"]
    assert (fc.forward, fc.own, fc.own_backward) == (100, 100, 100)
    assert (net.forward, net.own, net.own_backward) == (200, 100, 0)
    assert fc.ops.most_common(1) == [("aten::mm", 60)]
    assert totals.ops["aten::linear"].allocated == 64
    assert totals.between == 650 - 100 - 80 - 20


def test_the_work_of_a_device_goes_to_the_op_that_launched_it() -> None:
    kernels = [
        Event("gemm", 300, 100, linked=2, device="CUDA"),
        Event("gemm", 350, 100, linked=3, device="CUDA"),
        Event("Memcpy HtoD (Pinned -> Device)", 700, 50, linked=99, device="CUDA"),
    ]
    totals = add_up([*STEP, *kernels], MARKS)
    assert (totals.device, totals.device_busy, totals.copies_to_device) == (250, 200, 50)
    assert totals.ops["aten::addmm"].device == totals.full_precision == 100
    assert totals.modules["fc"].device == 200
    result = summarise(
        totals, None, seconds=1e-6, steps=1, device="cuda", tensor_cores=True, watched=False, notes=[], trace=None
    )
    assert result.device == "cuda"
    assert result.device_busy == pytest.approx(0.2)
    assert result.ops[0].device_share == pytest.approx(0.4)
    assert result.modules[0].share == pytest.approx(0.8)
    assert "idle 80 %" in " ".join(result.verdict)
    assert "own cuda" in str(result)
    assert (
        summarise(
            add_up(STEP, MARKS),
            None,
            seconds=1e-6,
            steps=1,
            device="cuda",
            tensor_cores=False,
            watched=False,
            notes=[],
            trace=None,
        ).device
        is None
    ), "there was one, and it did nothing"


def test_too_many_events_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seismograd.profiling.reading.MOST_EVENTS", 3)
    totals = add_up(STEP, MARKS)
    assert totals.cut
    result = summarise(
        totals, None, seconds=1e-6, steps=1, device=None, tensor_cores=False, watched=False, notes=[], trace=None
    )
    assert "Only the first 3 events" in str(result)


def test_how_numbers_are_written() -> None:
    assert [seconds(value) for value in (2.5, 0.0031, 12e-6)] == ["2.5 s", "3.1 ms", "12 us"]
    assert [percent(value) for value in (0.0, 0.001, 0.5)] == ["0 %", "<1 %", "50 %"]
    assert table(["a", "b", "c"], [["x", "", "1"], ["yy", "", "12"]], right=[2]) == ["a    c", "x    1", "yy  12"]
