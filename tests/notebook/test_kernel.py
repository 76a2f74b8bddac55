"""Seismograd in real kernels: cells show the run as it goes on, name their lines, and leave nothing behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .kernels import Kernel

SETUP = """
import gc, threading, time
import torch
import seismograd as sg
from seismograd import notebooks, patches, training
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)

def left():
    "What is still attached, in words."
    gc.collect()
    told = [f"thread {t.name}" for t in threading.enumerate() if "seismograd" in t.name.lower()]
    told += [f"open {w.name}" for w in training.watches if not w.closed]
    told += ["backward is patched"] if torch.autograd.backward is not BACKWARD else []
    told += ["step is patched"] if torch.optim.SGD.step is not STEP else []
    told += ["listeners"] if patches._listeners or patches._undo else []
    told += ["listens to cells"] if notebooks._cell_is_over in get_ipython().events.callbacks["post_run_cell"] else []
    for name, module in list(globals().items()):
        if isinstance(module, nn.Module):
            told += [f"hook on {name}" for m in module.modules() if m._forward_hooks or m._forward_pre_hooks]
    return told

torch.optim.SGD([torch.zeros(1)])  # torch wraps the step of a class when the first one is made
BACKWARD, STEP = torch.autograd.backward, torch.optim.SGD.step

def fit(model, optimizer, steps, pause=0.0):
    for at in range(steps):
        optimizer.zero_grad()
        x = torch.randn(16, 4)
        nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
        if pause:
            time.sleep(pause)
            if at == 5:
                print("trains", flush=True)
"""

HEALTHY = """
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
sgd = torch.optim.SGD(net.parameters(), lr=1e-2)
with sg.watch(net, sgd, name="<b>fine</b>") as watch:
    fit(net, sgd, 60, 0.06)
"""

SICK = """
class Root(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
    def forward(self, x):
        return torch.sqrt(self.layer(x) - 100.0)
root = Root()
sgd = torch.optim.SGD(root.parameters(), lr=1e-2)
with sg.watch(root, sgd, name="sick") as watch:
    fit(root, sgd, 5)
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel(tmp_path_factory.mktemp("notebook")) as kernel:
        kernel.good(SETUP)
        yield kernel


def nothing_is_left(kernel: Kernel) -> None:
    assert kernel.good("print(left())").stdout.strip() == "[]"


def is_a_card(html: str) -> bool:
    """Whether it needs neither a script nor a network, and is small."""
    return "<script" not in html and "http" not in html and len(html) < 60_000 and 'class="sg-cell' in html


def test_a_healthy_run_is_one_output_that_is_drawn_again(kernel: Kernel) -> None:
    cell = kernel.good(HEALTHY)
    (shown,) = cell.shown
    assert shown["id"]
    assert len(cell.updates) >= 2, "3.6 seconds of training"
    assert {each["id"] for each in cell.updates} == {shown["id"]}
    last = cell.last(shown)
    html = last["text/html"]
    assert is_a_card(html)
    assert "<svg" in html
    assert "&lt;b&gt;fine" in html
    assert "<b>fine" not in html
    assert "healthy" in last["text/plain"]
    assert "60 steps" in last["text/plain"]
    assert "running" in shown["data"]["text/plain"]
    assert "running" not in last["text/plain"]
    assert not cell.stderr
    nothing_is_left(kernel)


def test_a_finding_is_shown_with_the_line_of_its_cell(kernel: Kernel) -> None:
    cell = kernel.good(SICK.strip())
    number = cell.number
    (shown,) = cell.shown
    last = cell.last(shown)
    assert is_a_card(last["text/html"])
    assert f"cell {number}, line 6" in last["text/html"]
    assert f"cell {number}, line 6" in last["text/plain"]
    text = re.sub(r"<[^>]*>", "", last["text/html"])
    assert "return torch.sqrt(self.layer(x) - 100.0)" in text
    assert "critical" in text
    told = kernel.good("print(watch.findings[0].where.file, watch.findings[0].where.line)").stdout
    assert told.strip() == f"cell {number} 6"
    nothing_is_left(kernel)


def test_watch_run_runs_and_preflight_show_themselves(kernel: Kernel) -> None:
    kernel.good(SICK.strip())
    kernel.good("net = nn.Linear(4, 1)")
    for code, word in (
        ("watch", "torch.sqrt"),
        ("sg.runs()[0]", "torch.sqrt"),
        ("sg.runs()", "sick"),
        ("sg.preflight(net, (torch.randn(8, 4), torch.randn(8, 1)), nn.functional.mse_loss)", "What was checked"),
    ):
        html = kernel.good(code).result["text/html"]
        assert is_a_card(html), code
        assert word in re.sub(r"<[^>]*>", "", html), code


def test_a_text_is_a_text_and_no_output_of_the_cell(kernel: Kernel) -> None:
    cell = kernel.good("""
net = nn.Linear(4, 1)
told = str(sg.preflight(net, (torch.randn(8, 4), torch.randn(8, 1)), nn.functional.mse_loss))
print(told.splitlines()[0])
""")
    assert cell.stdout.startswith("preflight: ")
    assert not cell.shown


def test_an_interrupted_cell_leaves_nothing_attached(kernel: Kernel) -> None:
    cell = kernel.run(HEALTHY.replace("60, 0.06", "100_000, 0.02"), interrupt_at="trains")
    assert cell.interrupted, cell.stderr
    assert "stopped by Ctrl-C" in cell.last(cell.shown[0])["text/plain"]
    nothing_is_left(kernel)
    assert "KeyboardInterrupt" in kernel.good("print(watch.report()['run']['exit'])").stdout


def test_an_error_before_the_first_step_is_told_without_one(kernel: Kernel) -> None:
    opened = "net = nn.Linear(4, 1)\nwith sg.watch(net, torch.optim.SGD(net.parameters(), lr=1e-2)):\n"
    cell = kernel.run(f'{opened}    raise ValueError("no data")')
    assert "0 steps, ValueError: no data" in cell.last(cell.shown[0])["text/plain"]
    nothing_is_left(kernel)


OPENS = """
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
sgd = torch.optim.SGD(net.parameters(), lr=1e-2)
watch = sg.watch(net, sgd, name="open")
"""


def test_a_watch_that_the_interrupted_cell_opened_is_closed_too(kernel: Kernel) -> None:
    cell = kernel.run(f"{OPENS}\nfit(net, sgd, 100_000, 0.02)", interrupt_at="trains")
    assert cell.interrupted, cell.stderr
    nothing_is_left(kernel)


def test_one_of_an_earlier_cell_stays_until_it_is_closed(kernel: Kernel) -> None:
    kernel.good(OPENS)
    cell = kernel.run("fit(net, sgd, 100_000, 0.02)", interrupt_at="trains")
    assert cell.interrupted, cell.stderr
    assert kernel.good("print(watch.closed)").stdout.strip() == "False"
    assert "open open" in kernel.good("print(left())").stdout
    before = int(kernel.good("print(watch.report()['run']['steps'])").stdout)
    assert before > 5
    kernel.good("fit(net, sgd, 4)")
    kernel.good("watch.close()")
    assert int(kernel.good("print(watch.report()['run']['steps'])").stdout) >= before + 4
    nothing_is_left(kernel)


@pytest.mark.parametrize("cell_id", ["the-cell", None])
def test_a_cell_that_is_run_again_closes_the_forgotten_watch(kernel: Kernel, cell_id: str | None) -> None:
    again = 'watch = sg.watch(net, sgd, name="second")'
    kernel.good(OPENS, cell_id=cell_id)
    kernel.good("forgotten = watch")
    cell = kernel.good(OPENS if cell_id else again, cell_id=cell_id)
    why = "this cell had opened it before" if cell_id else "it was still open on this model"
    assert f"the watch 'open' is closed, {why}" in cell.stderr
    assert kernel.good("print(forgotten.closed, watch.closed)").stdout.split() == ["True", "False"]
    kernel.good("watch.close()")
    nothing_is_left(kernel)


def test_a_cell_without_an_id_is_known_by_its_text(kernel: Kernel) -> None:
    for _ in range(3):
        cell = kernel.good(OPENS)  # another model each time
    assert "the watch 'open' is closed, this cell had opened it before" in cell.stderr
    assert kernel.good("print(left())").stdout.count("open open") == 1
    kernel.good("watch.close()")
    nothing_is_left(kernel)


def test_an_open_watch_is_drawn_as_it_stands_when_a_cell_is_over(kernel: Kernel) -> None:
    opened = kernel.good(OPENS)
    trained = kernel.good("fit(net, sgd, 7)")
    (shown,) = trained.shown
    assert not opened.shown
    assert "7 steps" in trained.last(shown)["text/plain"]
    assert not kernel.good("1").updates  # nothing is new
    kernel.good("watch.close()")
    nothing_is_left(kernel)


def test_two_watches_of_one_cell_live_side_by_side(kernel: Kernel) -> None:
    cell = kernel.good(f"{OPENS}\nother = nn.Linear(4, 1)\nsecond = sg.watch(other, name='other')")
    assert "is closed" not in cell.stderr
    assert kernel.good("print(watch.closed, second.closed)").stdout.split() == ["False", "False"]
    kernel.good("watch.close(); second.close()")
    nothing_is_left(kernel)


def test_progress_bars_are_one_output_too(kernel: Kernel) -> None:
    train = """
from seismograd.optimize.tuning.search_progress import Clock
with Clock(2.0) as clock:
    for at in range(30):
        clock.show(f"variant {at}")
        time.sleep(0.02)
"""
    cell = kernel.good(train)
    (shown,) = cell.shown
    assert len(cell.updates) >= 2
    assert "<progress" in shown["data"]["text/html"]
    assert "tune: done" in cell.last(shown)["text/plain"]
    assert not cell.stdout
    assert not cell.stderr


def test_top_level_await_and_the_async_logger(kernel: Kernel) -> None:
    cell = kernel.good("""
import asyncio
async with sg.AsyncTrainingLogger("async.jsonl") as logger:
    net = nn.Linear(4, 1)
    with sg.watch(net, torch.optim.SGD(net.parameters(), lr=0.01)) as watch:
        sgd = torch.optim.SGD(net.parameters(), lr=0.01)
        for at in range(5):
            sgd.zero_grad(); net(torch.randn(8, 4)).square().mean().backward(); sgd.step()
            await asyncio.sleep(0)
print(watch.report()["run"]["steps"])
""")
    assert cell.stdout.strip() == "5"
    nothing_is_left(kernel)


def test_a_terminal_ipython_is_left_as_it_is(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = f"{SETUP}\n{SICK}\nprint(notebooks.shell() is None, watch.findings[0].where.file, watch.closed)"
    (tmp_path / "cells.ipy").write_text(script)
    command = [sys.executable, "-m", "IPython", "--colors=NoColor", "--no-banner", str(tmp_path / "cells.ipy")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split()[0] == "True", done.stdout
    assert "critical[nonfinite" in done.stderr or "critical" in done.stderr
