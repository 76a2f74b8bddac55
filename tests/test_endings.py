"""A signal ends a process as it would have, after what was at work has been ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from seismograd import endings

BEFORE = """
import os, signal, sys, threading, time
from seismograd import endings
def leaving(code, name):
    print("ended", code, name, flush=True)
"""


def _run(program: str, tmp_path: Path) -> tuple[int, list[str]]:
    script = tmp_path / "program.py"
    script.write_text(BEFORE + program)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.split("\n")[:-1]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_what_is_at_work_is_ended_first(tmp_path: Path, name: str) -> None:
    program = f"endings.before_a_signal_ends(leaving)\nos.kill(os.getpid(), signal.{name})\ntime.sleep(60)"
    number = signal.Signals[name]
    assert _run(program, tmp_path) == (-number, [f"ended {128 + number} {name}"])


def test_a_failure_does_not_keep_the_process_alive(tmp_path: Path) -> None:
    program = """
def fails(code, name): raise RuntimeError("no")
endings.before_a_signal_ends(fails)
endings.before_a_signal_ends(leaving)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""
    assert _run(program, tmp_path) == (-15, ["ended 143 SIGTERM"])


def test_the_default_is_back_when_nothing_is_at_work(tmp_path: Path) -> None:
    one, other = (endings.before_a_signal_ends(lambda code, name: None) for _ in range(2))
    assert signal.getsignal(signal.SIGTERM) is endings._handle
    one()
    one()
    assert signal.getsignal(signal.SIGTERM) is endings._handle
    other()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_handler_of_the_users_stays() -> None:
    def theirs(number: int, frame: object) -> None: ...

    try:
        signal.signal(signal.SIGTERM, theirs)
        forget = endings.before_a_signal_ends(lambda code, name: None)
        assert signal.getsignal(signal.SIGTERM) is theirs
        forget()
        assert signal.getsignal(signal.SIGTERM) is theirs
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        forget = endings.before_a_signal_ends(lambda code, name: None)
        signal.signal(signal.SIGTERM, theirs)
        forget()
        assert signal.getsignal(signal.SIGTERM) is theirs
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_on_another_thread_nothing_is_changed() -> None:
    seen = []

    def work() -> None:
        forget = endings.before_a_signal_ends(lambda code, name: None)
        seen.append(signal.getsignal(signal.SIGTERM))
        forget()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


def test_a_forked_child_has_the_default(tmp_path: Path) -> None:
    program = """
endings.before_a_signal_ends(leaving)
child = os.fork()
if not child:
    print(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""
    assert _run(program, tmp_path) == (-15, ["True", "-15", "ended 143 SIGTERM"])


def test_under_supervision_someone_else_sees_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "supervised", True)
    forget = endings.before_a_signal_ends(lambda code, name: None)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    forget()


def test_one_that_waits_in_native_code_ends_all_the_same(tmp_path: Path) -> None:
    program = """
import ctypes, threading
endings.before_a_signal_ends(leaving)
endings.insist()
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
libc.pthread_mutex_lock(mutex)
libc.pthread_mutex_lock(mutex)
"""
    assert _run(program, tmp_path) == (-15, [])


def test_one_that_comes_back_is_ended_first(tmp_path: Path) -> None:
    program = """
endings.before_a_signal_ends(leaving)
endings.insist()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""
    assert _run(program, tmp_path) == (-15, ["ended 143 SIGTERM"])


def test_nothing_is_left_of_what_insists() -> None:
    forget = endings.before_a_signal_ends(lambda code, name: None)
    endings.insist()
    assert endings._wakeup is not None
    forget()
    assert endings._wakeup is None
    assert signal.set_wakeup_fd(-1) == -1


def test_on_another_thread_what_insists_stays_until_the_main_thread_leaves() -> None:
    forget = endings.before_a_signal_ends(lambda code, name: None)
    endings.insist()
    elsewhere = threading.Thread(target=forget)
    elsewhere.start()
    elsewhere.join()
    assert endings._wakeup is not None
    os.fstat(endings._wakeup[1])  # it is open: Python may still write to it
    endings.before_a_signal_ends(lambda code, name: None)()
    assert endings._wakeup is None
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
