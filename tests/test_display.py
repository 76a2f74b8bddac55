"""What `seismograd run` shows: through a real pseudo-terminal into an emulated one, and as plain lines elsewhere."""

from __future__ import annotations

import io
import math
import os
import random
import re
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, TextIO

import pyte
import pytest

from seismograd.protocols import Sink
from seismograd.records import Finding, Reading, Severity, Where
from seismograd.reports.report import build_report
from seismograd.sinks import display as display_module
from seismograd.sinks.curve import ASCII, Curve, sparkline
from seismograd.sinks.display import Display

FOUND = Finding(
    "loss-spike", Severity.WARNING, 7, "the loss jumped", where=Where(phase="forward"), recommendations=("wait", "more")
)
WORSE = replace(FOUND, severity=Severity.CRITICAL, message="the loss is gone", last_step=9, count=2)
TOLD = "warning[loss-spike]: the loss jumped\n  --> forward, step 7\n   = help: wait\n"


class Clock:
    """A second passes when it is told to. Who looks at the clock also empties the terminals: a full one would block."""

    now = 100.0

    def __call__(self) -> float:
        for terminal in Terminal.used:
            terminal.update()
        return self.now


class Terminal:
    """A terminal of `columns` and `rows`: what is written to `stream` goes through the kernel to an emulator."""

    used: ClassVar[list[Terminal]] = []

    def __init__(self, columns: int, rows: int) -> None:
        Terminal.used.append(self)
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        self.stream = open(self.slave, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self.parser = pyte.ByteStream(self.screen)
        self.raw = b""
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        self.update()
        termios.tcsetwinsize(self.slave, (rows, columns))
        if (rows, columns) != (self.screen.lines, self.screen.columns):
            self.screen.resize(rows, columns)

    def say(self, text: str) -> None:
        """What the script prints."""
        self.stream.write(text)
        self.stream.flush()
        self.update()

    def update(self) -> None:
        while True:
            try:
                data = os.read(self.master, 65536)
            except BlockingIOError:
                return
            self.raw += data
            self.parser.feed(data)

    @property
    def rows(self) -> list[str]:
        self.update()
        return [row.rstrip() for row in self.screen.display]

    @property
    def text(self) -> str:
        """All that was ever in the scrolling part, the rows that have left the screen first."""
        rows = self.rows
        gone = ["".join(row[at].data for at in range(self.screen.columns)).rstrip() for row in self.screen.history.top]
        return "\n".join([*gone, *rows[:-1]]).rstrip("\n")

    @property
    def foot(self) -> str:
        return self.rows[-1]

    def close(self) -> None:
        Terminal.used.remove(self)
        self.stream.close()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[80, 200])
def terminal(request: pytest.FixtureRequest) -> Iterator[Terminal]:
    made = Terminal(request.param, {80: 24, 200: 50}[request.param])
    yield made
    made.close()


@pytest.fixture
def small() -> Iterator[Terminal]:
    made = Terminal(80, 10)
    yield made
    made.close()


def train(sink: Sink, clock: Clock, steps: range, pace: float = 4.0) -> None:
    for step in steps:
        clock.now += 1 / pace
        sink.write_reading(Reading(step, {"loss": 2.0 / (1 + step)}))


# -- at the foot of a terminal -----------------------------------------------------------------------------------------


def test_nothing_is_drawn_before_the_first_reading(terminal: Terminal, clock: Clock) -> None:
    display = Display(terminal.stream, clock=clock)
    display.sink()
    display.end()
    terminal.update()
    assert terminal.raw == b""


def test_the_line_says_how_it_goes(terminal: Terminal, clock: Clock) -> None:
    display = Display(terminal.stream, clock=clock)
    sink = display.sink()
    train(sink, clock, range(1_259), pace=100)
    train(sink, clock, range(1_259, 1_299))
    curve = {80: "█▅▃▃▂▂▂▁▁▁▁▁", 200: "█▆▅▅▄▄▄▄▃▃▃▃▃▃▃▂▂▂▂▂▂▂▂▂▂▂▂▂▂▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁"}
    shown = curve[terminal.screen.columns]
    assert terminal.foot == f"seismograd  1,299 steps, 4.0/s  loss 0.001540 {shown}  nothing found  0:22"
    sink.write_finding(replace(FOUND, severity=Severity.INFO))
    sink.write_finding(replace(FOUND, id="b"))
    sink.write_finding(replace(FOUND, id="c"))
    sink.update_finding(replace(WORSE, id="c"))
    train(sink, clock, range(1_300, 1_301))
    assert "1,301 steps" in terminal.foot
    assert "  1 critical, 1 warning, 1 remark" in terminal.foot
    assert b"\x1b[1;31m1 critical" in terminal.raw


def test_what_the_script_prints_is_left_as_it_is(terminal: Terminal, clock: Clock) -> None:
    """The same output, in chunks that end anywhere, with and without the display: the same text on the screen."""
    choose = random.Random(0)
    pieces = [
        "word ",
        "a line\n",
        "\rover it",
        "\n",
        "x" * 30,
        "\ttab",
        "\x1b[31mred\x1b[0m",
        "long " * 40,
        "\x1b[2K\r",
    ]
    alone = Terminal(terminal.screen.columns, terminal.screen.lines - 1)
    sink = Display(terminal.stream, clock=clock).sink()
    for step in range(300):
        piece = choose.choice(pieces)
        terminal.say(piece)
        alone.say(piece)
        if alone.screen.cursor.x < alone.screen.columns:  # right of the margin a cursor cannot be saved everywhere
            train(sink, clock, range(step, step + 1))
    assert terminal.foot.startswith("seismograd  ")
    assert terminal.text == "\n".join([alone.text, alone.foot]).rstrip("\n")
    assert (terminal.screen.cursor.x, terminal.screen.cursor.y) == (alone.screen.cursor.x, alone.screen.cursor.y)
    alone.close()


@pytest.mark.parametrize(
    "before", ["", "in mid-line", "one\ntwo\n", "row\n" * 9, "row\n" * 9 + "in mid-line", "row\n" * 30]
)
def test_the_cursor_stays_with_its_text_wherever_it_stands(before: str, small: Terminal, clock: Clock) -> None:
    small.say(before)
    display = Display(small.stream, clock=clock)
    train(display.sink(), clock, range(3))
    small.say(", and on\nnext")
    assert small.text == f"{before}, and on\nnext"
    assert small.foot.startswith("seismograd")
    display.end()
    small.say(" it goes")
    assert f"{small.text}\n{small.foot}".rstrip("\n") == f"{before}, and on\nnext it goes"


def test_the_end_gives_the_terminal_back(small: Terminal, clock: Clock) -> None:
    display = Display(small.stream, clock=clock)
    sink = display.sink()
    small.say("row\n" * 20 + "in mid-line")
    train(sink, clock, range(3))
    small.update()
    assert small.screen.margins == (0, 8)
    display.end()
    small.update()
    assert small.screen.margins is None
    assert small.foot == ""
    drawn = small.raw
    display.end()
    train(sink, clock, range(3, 9))
    sink.write_finding(FOUND)
    sink.close({})
    small.update()
    assert small.raw == drawn, "nothing is shown after the end"
    display.print("the verdict")
    assert small.rows[-3:] == ["in mid-line", "the verdict", ""]


@pytest.mark.parametrize("size", [(80, 6), (80, 20), (40, 10), (160, 10), (50, 5), (120, 30)])
def test_a_new_size_is_followed(small: Terminal, clock: Clock, size: tuple[int, int]) -> None:
    display = Display(small.stream, clock=clock)
    sink = display.sink()
    small.say("row\n" * 20)
    train(sink, clock, range(3))
    small.resize(*size)
    train(sink, clock, range(3, 6))
    small.say("on\n")
    assert small.screen.margins == (0, size[1] - 2)
    assert small.foot.startswith("seismograd  6 steps, 4.0/s")
    assert sum("seismograd" in row for row in small.rows) == 1, "the old line is gone"
    assert "on" in small.rows[:-1]
    small.resize(80, 12)
    display.end()
    small.say("last")
    assert small.screen.margins is None
    assert not any("seismograd" in row for row in small.rows)


def test_a_terminal_that_became_too_small_is_left_alone(small: Terminal, clock: Clock) -> None:
    display = Display(small.stream, clock=clock)
    sink = display.sink()
    train(sink, clock, range(3))
    small.resize(80, 3)
    train(sink, clock, range(3, 6))
    small.update()
    assert small.screen.margins is None
    small.resize(80, 10)
    train(sink, clock, range(6, 9))
    assert "9 steps" in small.foot


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (1, ""),
        (20, ""),
        (21, "123,009 steps, 4.0/s"),
        (36, "seismograd  123,009 steps, 4.0/s"),
        (60, "seismograd  123,009 steps, 4.0/s  loss 1.626e-05 █▇▆▅▄▃▂▁▁"),
        (77, "seismograd  123,009 steps, 4.0/s  loss 1.626e-05 █▆▄▁  1 critical, 1 warning"),
        (78, "seismograd  123,009 steps, 4.0/s  loss 1.626e-05  1 critical, 1 warning  0:02"),
        (85, "seismograd  123,009 steps, 4.0/s  loss 1.626e-05 █▇▅▄▂▁  1 critical, 1 warning  0:02"),
        (500, "seismograd  123,009 steps, 4.0/s  loss 1.626e-05 █▇▆▅▄▃▂▁▁  1 critical, 1 warning  0:02"),
    ],
)
def test_the_line_never_wraps(columns: int, line: str, clock: Clock) -> None:
    terminal = Terminal(columns, 10)
    sink = Display(terminal.stream, clock=clock).sink()
    for severity in (Severity.WARNING, Severity.CRITICAL):
        sink.write_finding(replace(FOUND, id=severity.value, severity=severity, message="", recommendations=()))
    terminal.say("\x1b[2J\x1b[Hscript\n")
    train(sink, clock, range(123_000, 123_009))
    assert terminal.foot == line
    assert "".join(terminal.rows[:-1]) == "script"
    terminal.close()


def test_it_is_drawn_five_times_a_second_at_most_in_one_write_each(
    small: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    monkeypatch.setattr(display_module, "_send", lambda fd, data: sent.append(data))
    train(Display(small.stream, clock=clock).sink(), clock, range(1000), pace=1000)
    assert 4 <= len(sent) <= 6
    assert all(data.count(b"\x1b7") == data.count(b"\x1b8") == 1 for data in sent)


def test_the_last_figures_are_drawn_at_the_end_of_a_run(small: Terminal, clock: Clock) -> None:
    sink = Display(small.stream, clock=clock).sink()
    train(sink, clock, range(1003), pace=1000)
    sink.close(build_report(run={}))
    assert "1,003 steps" in small.foot


def test_findings_come_above_the_line_once_and_again_when_worse(small: Terminal, clock: Clock) -> None:
    small.resize(80, 30)
    display = Display(small.stream, clock=clock)
    sink = display.sink()
    train(sink, clock, range(7))
    small.say("in mid-line")
    sink.write_finding(FOUND)
    sink.update_finding(replace(FOUND, count=2, last_step=8))
    sink.update_finding(WORSE)
    sink.update_finding(replace(WORSE, count=3))
    sink.write_finding(replace(FOUND, id="lr-jump", severity=Severity.INFO))
    assert small.text == (
        f"in mid-line\n{TOLD}\ncritical[loss-spike]: the loss is gone\n"
        "  --> forward, steps 7 to 9 (2 times)\n   = help: wait"
    )
    assert b"\x1b[1;33mwarning[loss-spike]" in small.raw
    assert small.foot.startswith("seismograd")


def test_of_several_runs_the_one_that_read_last_is_shown_with_its_label(small: Terminal, clock: Clock) -> None:
    display = Display(small.stream, clock=clock)
    first = display.sink()
    train(first, clock, range(20))
    first.write_finding(FOUND)
    assert small.foot.startswith("seismograd  20 steps")
    second = display.sink("fold 2")
    train(second, clock, range(5))
    second.write_finding(WORSE)
    train(second, clock, range(5, 7))
    assert small.foot.startswith("seismograd  fold 2  7 steps")
    assert "1 critical, 1 warning" in small.foot, "what was found stays in sight"
    assert "--> forward, step 7" in small.text
    assert "--> forward, fold 2, steps 7 to 9 (2 times)" in small.text
    train(first, clock, range(20, 22))
    assert small.foot.startswith("seismograd  run 1  22 steps")


def test_of_several_optimizers_the_first_ones_loss_is_shown(small: Terminal, clock: Clock) -> None:
    sink = Display(small.stream, clock=clock).sink()
    for number, shown in ((1, "6.000"), (0, "5.000"), (1, "5.000")):
        clock.now += 1
        sink.write_reading(Reading(4, {f"loss/{number}": 5.0 + number}, series=number))
        assert f"loss {shown} ▄  nothing found" in small.foot
    clock.now += 1
    sink.write_reading(Reading(7, {"val_loss": 9.0}))
    assert "8 steps, 1.0/s  loss 5.000 ▄  nothing found" in small.foot


@pytest.mark.parametrize(
    ("loss", "shown"), [(math.nan, "loss NaN !"), (math.inf, "loss Inf !"), (-3.0, "loss -3.000 ▄")]
)
def test_any_loss_can_be_shown(small: Terminal, clock: Clock, loss: float, shown: str) -> None:
    sink = Display(small.stream, clock=clock).sink()
    sink.write_reading(Reading(0, {"loss": loss}))
    assert f"1 step  {shown}  " in small.foot
    sink.close({})


def test_without_a_loss_the_line_does_without(small: Terminal, clock: Clock) -> None:
    sink = Display(small.stream, clock=clock).sink()
    sink.write_reading(Reading(0, {"grad/norm": 1.0}))
    assert small.foot == "seismograd  1 step  nothing found  0:00"


@pytest.mark.parametrize(
    ("pace", "words"),
    [(2000.0, ", 2,000/s"), (85.0, ", 85/s"), (3.4, ", 3.4/s"), (0.5, ", 2.0 s each"), (0.02, ", 50 s each")],
)
def test_the_pace_is_that_of_the_last_seconds(small: Terminal, clock: Clock, pace: float, words: str) -> None:
    sink = Display(small.stream, clock=clock).sink()
    train(sink, clock, range(50), pace=100 / pace)
    train(sink, clock, range(50, 50 + max(4, int(6 * pace))), pace=pace)
    assert f"steps{words}  loss" in small.foot


def test_no_colour_where_none_is_wanted(small: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    sink = Display(small.stream, clock=clock).sink()
    sink.write_finding(FOUND)
    train(sink, clock, range(9))
    small.update()
    assert not re.search(rb"\x1b\[[\d;]*3\d(;\d+)*m", small.raw)


def test_without_block_characters_the_curve_is_ascii(small: Terminal, clock: Clock) -> None:
    with open(small.slave, "w", encoding="ascii", closefd=False) as stream:
        display = Display(stream, clock=clock)
        sink = display.sink()
        train(sink, clock, range(9))
        sink.write_finding(replace(FOUND, message="größer"))
        assert re.search(r"loss 0.2222 '[-._']+_  nothing", small.foot)
        assert "warning[loss-spike]: gr??er" in small.text


def test_quiet_shows_nothing_but_what_it_is_given(small: Terminal, clock: Clock) -> None:
    display = Display(small.stream, quiet=True, clock=clock)
    sink = display.sink()
    sink.write_finding(FOUND)
    train(sink, clock, range(900))
    sink.close({})
    small.update()
    assert small.raw == b""
    display.end()
    display.print("the verdict")
    assert small.text == "\nthe verdict"


def test_an_end_in_the_middle_of_a_draw_is_the_end(
    small: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a signal comes between the decision to draw and the write."""
    display = Display(small.stream, clock=clock)
    sink, send = display.sink(), display_module._send

    def interrupted(fd: int, data: bytes) -> None:
        monkeypatch.setattr(display_module, "_send", send)
        display.end()
        send(fd, data)

    monkeypatch.setattr(display_module, "_send", interrupted)
    train(sink, clock, range(1))
    small.update()
    assert small.screen.margins is None
    assert small.foot == ""


def test_a_print_within_a_print_to_the_same_stream_arrives(small: Terminal) -> None:
    """As when a signal handler prints while the stream is being written to: Python's buffers refuse that."""

    class Busy(io.TextIOWrapper):
        def write(self, text: str) -> int:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter>")

    stream = Busy(open(small.slave, "wb", closefd=False), encoding="utf-8")  # noqa: SIM115
    Display(stream).print("the verdict")
    assert small.text == "\nthe verdict"
    stream.close()


def test_a_fork_neither_draws_nor_ends(small: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display(small.stream, clock=clock)
    sink = display.sink()
    train(sink, clock, range(3))
    small.update()
    drawn, pid = small.raw, os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    train(sink, clock, range(3, 9))
    display.end()
    small.update()
    assert small.raw == drawn


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_terminal_that_obeys_nothing_gets_plain_lines(
    small: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch, term: str | None
) -> None:
    monkeypatch.setenv("TERM", term) if term else monkeypatch.delenv("TERM")
    sink = Display(small.stream, clock=clock).sink()
    train(sink, clock, range(60))
    assert small.text == "seismograd: 21 steps, 4.0/s, loss 0.09524, nothing found"
    assert b"\x1b" not in small.raw


def test_in_a_process_of_its_own_the_terminal_is_given_back_after_ctrl_c(small: Terminal) -> None:
    program = """if True:
        import os, signal, sys
        from seismograd.records import Reading
        from seismograd.sinks.display import Display
        display = Display(sys.stderr)
        sink = display.sink()
        try:
            print("a bar: 40%", end="", flush=True)
            sink.write_reading(Reading(0, {"loss": 1.0}))
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            display.end()
            display.print("stopped")
    """
    command = [sys.executable, "-c", program]
    subprocess.run(command, stdout=small.slave, stderr=small.slave, stdin=subprocess.DEVNULL, check=True, timeout=60)
    assert small.text == "a bar: 40%\nstopped"
    assert small.foot == ""
    assert small.screen.margins is None
    assert b"loss 1.000" in small.raw


# -- elsewhere ---------------------------------------------------------------------------------------------------------


def test_elsewhere_there_is_a_line_now_and_then(clock: Clock) -> None:
    out = io.StringIO()
    sink = Display(out, clock=clock).sink()
    at = []
    for step in range(1000):
        clock.now += 0.25
        before = out.getvalue()
        sink.write_reading(Reading(step, {"loss": 0.25}))
        if out.getvalue() != before:
            at.append(clock.now - 100)
    assert at == [5.25, 15.25, 30.25, 60.25, 120.25, 180.25, 240.25]
    assert out.getvalue().splitlines()[1] == "seismograd: 61 steps, 4.0/s, loss 0.2500, nothing found"


def test_a_slow_step_does_not_bring_a_shower_of_lines(clock: Clock) -> None:
    out = io.StringIO()
    sink = Display(out, clock=clock).sink()
    for step in range(4):
        clock.now += 200
        sink.write_reading(Reading(step, {"loss": 0.25}))
    assert out.getvalue().splitlines() == [
        "seismograd: 1 step, loss 0.2500, nothing found",
        "seismograd: 2 steps, 200 s each, loss 0.2500, nothing found",
        "seismograd: 3 steps, 200 s each, loss 0.2500, nothing found",
        "seismograd: 4 steps, 200 s each, loss 0.2500, nothing found",
    ]


def test_elsewhere_findings_come_at_once_without_escape_codes(clock: Clock) -> None:
    out = io.StringIO()
    display = Display(out, clock=clock)
    first, second = display.sink(), display.sink()
    first.write_finding(replace(FOUND, severity=Severity.INFO))
    assert out.getvalue() == ""
    first.update_finding(FOUND)
    assert out.getvalue() == TOLD.replace("forward, step", "forward, run 1, step")
    train(second, clock, range(60))
    assert out.getvalue().splitlines()[3:] == ["seismograd: run 2, 21 steps, 4.0/s, loss 0.09524, 1 warning"]
    display.end()
    display.print("the verdict")
    assert out.getvalue().endswith("1 warning\n\nthe verdict\n")
    assert "\x1b" not in out.getvalue()


def test_forced_colour_does_not_make_a_file_a_terminal(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    sink = Display(out, clock=clock).sink()
    train(sink, clock, range(60))
    assert out.getvalue() == "seismograd: 21 steps, 4.0/s, loss 0.09524, nothing found\n"
    sink.write_finding(FOUND)
    codes = re.compile(r"\x1b\[[\d;]*m")
    assert codes.search(out.getvalue()), "colour was asked for"
    assert codes.sub("", out.getvalue()).endswith(f"found\n\n{TOLD}")


# -- streams that break ------------------------------------------------------------------------------------------------


def use(stream: TextIO, clock: Clock) -> Display:
    display = Display(stream, clock=clock)
    sink = display.sink()
    sink.write_finding(FOUND)
    train(sink, clock, range(200))
    sink.update_finding(WORSE)
    sink.close({})
    display.print("the verdict")
    display.end()
    display.print("the verdict")
    return display


def test_a_closed_stream_is_no_error(clock: Clock) -> None:
    out = io.StringIO()
    out.close()
    use(out, clock)


def test_a_broken_pipe_is_no_error(clock: Clock) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = io.TextIOWrapper(os.fdopen(writer, "wb", buffering=0), write_through=True)
    use(stream, clock)
    stream.close()


def test_a_stream_that_closes_later_is_written_to_no_more(clock: Clock) -> None:
    class Fragile(io.StringIO):
        tries = 0

        def write(self, text: str) -> int:
            self.tries += 1
            raise OSError("no space left")

    out = Fragile()
    use(out, clock)
    assert out.tries == 1


def test_a_stream_of_few_characters_is_no_error(clock: Clock) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", errors="strict", write_through=True)
    display = Display(out, clock=clock)
    display.sink().write_finding(replace(FOUND, message="größer"))
    display.print("the verdict")
    assert raw.getvalue().startswith(b"warning[loss-spike]: gr??er\n")
    assert raw.getvalue().endswith(b"\n\nthe verdict\n")


def test_a_terminal_that_goes_away_is_no_error(clock: Clock) -> None:
    terminal = Terminal(80, 24)
    display = Display(terminal.stream, clock=clock)
    sink = display.sink()
    train(sink, clock, range(3))
    Terminal.used.remove(terminal)
    os.close(terminal.master)
    train(sink, clock, range(3, 9))
    sink.write_finding(FOUND)
    display.end()
    os.close(terminal.slave)


def test_a_file_that_took_the_terminals_place_is_not_written_to(small: Terminal, clock: Clock, tmp_path: Any) -> None:
    stream = os.fdopen(os.dup(small.slave), "w")
    display = Display(stream, clock=clock)
    sink = display.sink()
    train(sink, clock, range(3))
    with open(tmp_path / "data", "wb") as data:
        os.dup2(data.fileno(), stream.fileno())
    train(sink, clock, range(3, 9))
    display.end()
    assert (tmp_path / "data").read_bytes() == b"", "no line, no escape code"
    display.print("the verdict")
    assert (tmp_path / "data").read_bytes() == b"\nthe verdict\n"
    stream.close()


# -- the curve ---------------------------------------------------------------------------------------------------------


def test_a_curve_keeps_its_shape_in_bounded_memory() -> None:
    curve = Curve(size=16)
    for step in range(100_000):
        curve.add(step, float(step))
    assert len(curve.points(1000)) <= 16
    assert curve.points(3) == pytest.approx([16384, 49152, 82784], rel=0.01)
    assert curve.points(0) == []
    assert Curve().points(9) == []
    assert Curve().measured(9) == ([], [])


def test_a_curve_of_few_values_has_no_steps_between_them() -> None:
    curve = Curve(size=16)
    for step in (3, 13, 303):
        curve.add(step, step / 100)
    steps, values = curve.measured(16)
    assert (steps[0], len(steps)) == (3, 2)  # 3 and 13 are one point by now
    assert values == [pytest.approx(0.08), pytest.approx(3.03)]


def test_where_nothing_was_read_a_curve_stays_where_it_was() -> None:
    curve = Curve()
    for step, value in [(1000, 1.0), (1004, 3.0), (1002, 2.0), (5, 1.0)]:
        curve.add(step, value)
    assert curve.points(99) == [1.0, 1.0, 2.0, 2.0, 3.0]
    assert curve.points(1) == [1.75]


def test_one_nan_among_many_stays_in_sight() -> None:
    curve = Curve(size=16)
    for step in range(10_000):
        curve.add(step, math.nan if step == 5_000 else 1.0)
    assert sparkline(curve.points(10)).count("!") == 1


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([1.0], "▄"),
        ([2.0, 2.0, 2.0], "▄▄▄"),
        ([0.0, 0.0], "▄▄"),
        ([0.0, 7.0], "▁█"),
        ([-4.0, 0.0, 4.0], "▁▅█"),
        ([1e-4, 1e-2, 1.0], "▁▅█"),
        ([math.nan, math.inf, -math.inf], "!!!"),
        ([1.0, math.nan, 2.0], "▁!█"),
        ([-1.7e308, 1.7e308], "▄▄"),
        ([5e-324, 1.7e308], "▁█"),
    ],
)
def test_a_sparkline(values: list[float], drawn: str) -> None:
    assert sparkline(values) == drawn


def test_a_sparkline_in_ascii() -> None:
    assert sparkline([8.0, 4.0, 2.0, 1.0, math.nan], ASCII) == "'-._!"
