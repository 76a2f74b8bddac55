"""Whether a training goes on, seen from another thread."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
import torch
from torch import nn

from seismograd.distributed import stalls
from seismograd.distributed.stalls import Stalls, standing


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is set."""
    now = [1000.0]
    monkeypatch.setattr(stalls.time, "monotonic", lambda: now[0])
    return now


def elsewhere(act):
    """Where a thread stands that does something, while it does; and what lets it go."""
    begun, over = threading.Event(), threading.Event()

    def work():
        begun.set()
        act(over)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(5)
    return thread, over


def until(found):
    deadline = time.perf_counter() + 20
    while time.perf_counter() < deadline:
        if found():
            return True
        time.sleep(0.01)
    return False


def test_a_training_that_steps_is_never_stuck(clock):
    steps = [0]
    watch = Stalls(lambda: steps[0], threading.get_ident, lambda: 0.1, after=10)
    for _ in range(50):
        clock[0] += 9
        steps[0] += 1
        assert watch.look() == 0.0
        assert not watch.stuck


def test_one_that_sleeps_is_stuck_after_the_limit(clock):
    thread, over = elsewhere(lambda over: over.wait(60))
    try:
        watch = Stalls(lambda: 0, lambda: thread.ident, lambda: 0.1, after=10)
        watch.look()
        told = []
        for _ in range(14):
            clock[0] += 1
            watch.look()
            told.append(watch.stuck)
        assert told == [False] * 9 + [True] * 5
        assert watch.at is not None
        assert watch.at.phase == "rest"
        assert not watch.at.waits
        assert watch.at.stack[-1]["function"] == "<lambda>"
        assert "over.wait(60)" in watch.at.stack[-1]["code"]
    finally:
        over.set()
        thread.join()


def test_one_that_works_on_is_not(clock, monkeypatch):
    thread, over = elsewhere(lambda over: over.wait(60))  # in native code, say: its stack stays as it is
    monkeypatch.setattr(stalls, "_work", lambda thread: 0.5 * clock[0])
    try:
        watch = Stalls(lambda: 0, lambda: thread.ident, lambda: 0.1, after=10)
        watch.look()
        for _ in range(40):
            clock[0] += 1
            watch.look()
            assert not watch.stuck
    finally:
        over.set()
        thread.join()


def test_a_thread_s_own_work_is_measured():
    over = threading.Event()

    def busy():
        while not over.is_set():
            sum(range(1000))

    working, idle = threading.Thread(target=busy), threading.Thread(target=over.wait)
    working.start(), idle.start()
    try:
        assert until(lambda: stalls._work(working.ident) > 0.05)
        assert stalls._work(idle.ident) < 0.05
    finally:
        over.set()


def test_long_steps_have_a_longer_limit():
    assert Stalls(lambda: 0, lambda: 0, lambda: 30.0, after=60).limit == 600
    assert Stalls(lambda: 0, lambda: 0, lambda: 0.0, after=60).limit == 60


def test_a_backward_that_waits_is_known_by_its_stack():
    class Wait(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, over):
            ctx.over = over
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            ctx.over.wait(60)
            return grad, None

    def act(over):
        Wait.apply(torch.ones(1, requires_grad=True), over).backward()

    thread, over = elsewhere(act)
    try:
        assert until(lambda: standing(sys._current_frames().get(thread.ident)).phase == "backward")
        at = standing(sys._current_frames().get(thread.ident))
        assert not at.waits, "Python runs above the engine: it does not wait for others there"
    finally:
        over.set()
        thread.join()


def test_a_forward_pass_is_known_too():
    class Slow(nn.Module):
        def forward(self, over):
            over.wait(60)

    thread, over = elsewhere(Slow())
    try:
        assert until(lambda: standing(sys._current_frames().get(thread.ident)).phase == "forward")
    finally:
        over.set()
        thread.join()


def test_a_thread_that_is_gone_stands_nowhere():
    assert standing(None).stack == ()


def test_the_work_of_a_thread_that_has_ended_is_no_segmentation_fault():
    program = """
import threading, time
from seismograd.distributed import stalls
threading.stack_size(64 << 20)
ended = []
for _ in range(4):
    thread = threading.Thread(target=lambda: None)
    thread.start()
    ended.append(thread.ident)
    thread.join()
    more = [threading.Thread(target=time.sleep, args=(0.1,)) for _ in range(3)]
    [each.start() for each in more], [each.join() for each in more]
print(all(stalls._work(each) >= 0 for each in [0, *ended]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
