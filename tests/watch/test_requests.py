"""What is asked of a live run from outside really happens in the training, and is answered."""

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import seismograd as sg
from seismograd.errands import MOST_TRACES
from seismograd.loop import Loop
from seismograd.replay.again import Capture
from seismograd.reports.words import remarks
from seismograd.store import open_store

DEADLINE = 180.0


def built():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))
    return model, torch.optim.SGD(model.parameters(), 0.01)


def step(model, optimizer, scale=1.0):
    optimizer.zero_grad()
    x = torch.randn(4, 8)
    (nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)) * scale).backward()
    optimizer.step()


class Asked:
    """Asks a run in the store, and waits for the answers."""

    def __init__(self, where):
        self.where = where

    def __enter__(self):
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                self.store = open_store(self.where)
                self.run = self.store.run("last")
                return self
            except ValueError:
                assert time.monotonic() < deadline, "the run never came to the store"
                time.sleep(0.05)

    def __exit__(self, *_):
        self.store.close()

    def answer(self, number, meanwhile=lambda: time.sleep(0.02)):
        deadline = time.monotonic() + DEADLINE
        while True:
            (request,) = [each for each in self.run.requests() if each["id"] == number]
            if request["answer"] is not None:
                return request["answer"]
            assert time.monotonic() < deadline, f"no answer to {request}"
            meanwhile()

    def ask(self, kind, value=None, meanwhile=lambda: time.sleep(0.02)):
        return self.answer(self.run.ask(kind, value), meanwhile)


@pytest.fixture
def watched(tmp_path):
    """A watch that is open, and what trains a step of it."""
    model, optimizer = built()
    with sg.watch(model, optimizer, level="basic", sinks=[], store=tmp_path, strict=True) as watch:
        step(model, optimizer)
        watch.flush()
        with Asked(tmp_path) as asked:
            yield watch, asked, lambda **more: step(model, optimizer, **more)


def test_the_level_and_the_budget_change_at_once(watched):
    watch, asked, _ = watched
    assert asked.ask("level", "extreme") == "the level is extreme now, with a budget of 0.15"
    assert watch.level is sg.DebugLevel.EXTREME
    assert watch.governor.level is sg.DebugLevel.EXTREME
    assert asked.ask("budget", 0.02).startswith("the budget is 0.02 of the time now")
    assert watch.budget == 0.02
    assert "less than its usual 0.05" in asked.ask("level", "advanced")
    asked.ask("budget", None)
    assert watch.budget == 0.05
    asked.run.refresh()
    assert (asked.run.level, asked.run.budget) == ("advanced", 0.05)


@pytest.mark.parametrize(
    ("kind", "value", "answer"),
    [
        ("level", "absurd", "level 'absurd' is unknown: use one of 'basic', 'advanced', 'extreme'"),
        ("level", None, "level None is unknown"),
        ("level", {"a": [1]}, "level {'a': [1]} is unknown"),
        ("budget", 0, "budget 0 is no share of a step: give a number above 0 and at most 1"),
        ("budget", "much", "budget 'much' is no share"),
        ("budget", True, "budget True is no share"),
        ("budget", [0.1], "budget [0.1] is no share"),
        ("trace", 0, "trace takes how many steps, from 1 to 100, and not 0"),
        ("trace", "five", "trace takes how many steps"),
        ("capture", 3, "capture takes no value, and was given 3"),
        ("stop", "now", "stop takes no value"),
    ],
)
def test_bad_values_are_answered_and_change_nothing(watched, kind, value, answer):
    watch, asked, train = watched
    assert asked.ask(kind, value, train).startswith(answer)
    assert (watch.level, watch.budget) == (sg.DebugLevel.BASIC, 0.01)
    train()


def test_the_record_says_what_is_trained(watched):
    _, asked, _ = watched
    about = asked.run.about
    assert (about["model"], about["parameters"], about["device"]) == ("Sequential", 8 * 16 + 16 + 16 + 1, "cpu")
    assert (about["optimizer"], about["dtype"]) == ("SGD", "float32")


def test_the_record_of_a_run_that_was_over_at_once_says_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr("seismograd.loop.Loop.about", once(Loop.about))  # later the script has let go of its model
    model = nn.Linear(3, 1)
    with sg.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), store=tmp_path, sinks=[]):
        model(torch.ones(2, 3)).sum().backward()
    assert sg.runs(tmp_path)[0].about["parameters"] == 4


def once(function):
    calls = []

    def first(loop):
        calls.append(loop)
        return function(loop) if len(calls) == 1 else {}

    return first


def test_an_unknown_kind_is_answered_too(watched):
    watch, *_ = watched
    answers = []
    watch.errands.ask("dance", None, answers.append)
    assert answers == ["'dance' cannot be asked of a run: use one of level, budget, clear, stop, capture, trace"]


def test_clear_starts_the_counters_again_and_keeps_the_run(watched):
    watch, asked, train = watched
    for _ in range(4):
        train()
    assert watch.get_training_summary()["total_steps"] == 5
    assert "start again" in asked.ask("clear")
    assert watch.get_training_summary()["total_steps"] == 0
    asked.run.refresh()
    assert asked.run.state["summary"]["total_steps"] == 0
    train()
    assert watch.get_training_summary()["total_steps"] == 1
    assert watch.report()["run"]["steps"] == 6
    watch.flush()
    assert len(asked.run.series("loss")["loss"].last) == 6


def test_a_sound_step_is_saved_and_can_be_run_again(watched):
    watch, asked, train = watched
    answer = asked.ask("capture", None, train)
    (kept,) = asked.run.captures()
    assert kept.finding == "asked"
    assert answer.startswith(f"step {kept.step} was saved in")
    model, _ = built()
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    origin = sg.replay(kept.path, model)
    assert (origin.phase, origin.note) == ("", "a second run of the step was finite")
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    told = json.loads((kept.path / "capture.json").read_text())
    assert told["reading"]["scalars"]["loss"] > 0
    assert told["origin"]["phase"] == ""
    assert not watch.errands.waiting
    assert not watch.governor.insists


@pytest.mark.parametrize("lag", [0, 1])
def test_the_step_that_is_saved_has_its_own_weights_and_batch(tmp_path, lag):
    model, optimizer = built()
    seen, answers = [], []
    with sg.watch(model, optimizer, sinks=[], store=tmp_path, lag=lag, strict=True) as watch:
        for number in range(8):
            x = torch.full((4, 8), float(number))
            seen.append({name: value.detach().clone() for name, value in model.state_dict().items()})
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
            if number == 2:
                watch.errands.ask("capture", None, answers.append)
    with Asked(tmp_path) as asked:
        (kept,) = asked.run.captures()
    assert "was saved" in answers[0]
    assert kept.step > 2
    capture = Capture.load(kept.path)
    state = capture.state(0)
    assert all(torch.equal(state[name], value) for name, value in seen[kept.step].items())
    (call,) = capture.recorded(capture.fitted(built()[0])).calls
    assert torch.equal(call.args[0], torch.full((4, 8), float(kept.step)))


def test_two_captures_before_a_step_are_one(watched):
    _, asked, train = watched
    first, second = asked.run.ask("capture"), asked.run.ask("capture")
    time.sleep(0.6)  # both are heard before the next step
    assert asked.answer(first, train) == asked.answer(second, train)
    assert len(asked.run.captures()) == 1


def test_a_bad_step_that_is_asked_for_has_its_origin(watched):
    watch, asked, train = watched
    number = asked.run.ask("capture")
    while not watch.errands.waiting:
        time.sleep(0.01)
    train()
    train(scale=float("nan"))
    assert "was saved" in asked.answer(number, train)
    (kept,) = [each for each in asked.run.captures() if each.finding == "asked"]
    assert json.loads((kept.path / "capture.json").read_text())["origin"]["phase"]


def test_steps_are_traced(watched):
    watch, asked, train = watched
    answer = asked.ask("trace", 3, train)
    folder = watch.home / watch.id
    (file,) = folder.glob("trace-*.json.gz")
    first = int(file.name.removeprefix("trace-").removesuffix(".json.gz"))
    assert answer.startswith(f"steps {first} to {first + 2} were traced: ")
    names = {event.get("name") for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]}
    assert {"aten::linear", "aten::mse_loss", "0 (Linear)"} <= names
    assert not watch.errands.waiting
    asked.ask("trace", None, train)
    assert len(list(folder.glob("trace-*.json.gz"))) == 2


def test_a_trace_leaves_the_hooks_of_optimizers_alone_while_torch_walks_through_them(tmp_path):
    model, optimizer = built()
    heard, answers = [], []
    with sg.watch(model, optimizer, sinks=[], store=False, strict=True) as watch:
        watch.home = tmp_path
        handles = [register_optimizer_step_post_hook(lambda *_: heard.append(1)) for _ in range(3)]
        try:
            watch.errands.ask("trace", 2, answers.append)
            for _ in range(6):
                step(model, optimizer)
        finally:
            for handle in handles:
                handle.remove()
    assert "steps 1 to 2 were traced" in answers[0]
    assert len(heard) == 18


def test_traces_are_not_made_without_end(watched):
    watch, asked, train = watched
    watch.errands._traces = MOST_TRACES
    assert "traces were made in this run already" in asked.ask("trace", 1, train)


def test_a_trace_inside_a_profile_of_the_users_says_so(watched):
    _, asked, train = watched
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        answer = asked.ask("trace", 1, train)
    assert "torch.profiler is at work" in answer
    train()


def test_what_is_still_waiting_at_the_end_is_answered(tmp_path):
    model, optimizer = built()
    with sg.watch(model, optimizer, sinks=[], store=tmp_path, strict=True) as watch:
        step(model, optimizer)
        watch.flush()
        with Asked(tmp_path) as asked:
            numbers = [asked.run.ask(kind) for kind in ("capture", "stop", "trace")]
            deadline = time.monotonic() + DEADLINE
            while len(watch.errands._asked) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    with Asked(tmp_path) as asked:
        assert [asked.answer(number) for number in numbers] == ["the run ended before its next step"] * 3
        assert asked.ask("level", "basic") == "the run has ended"


def test_a_trace_that_the_end_cuts_short_is_there(tmp_path):
    model, optimizer = built()
    answers = []
    with sg.watch(model, optimizer, sinks=[], store=tmp_path, strict=True) as watch:
        watch.errands.ask("trace", 50, answers.append)
        for _ in range(3):
            step(model, optimizer)
        assert answers == []
    assert "were traced" in answers[0]
    assert torch.autograd.profiler._is_profiler_enabled is False


def test_a_stop_ends_the_training_at_the_end_of_a_step_as_ctrl_c_would(tmp_path):
    model, optimizer = built()
    watch = sg.watch(model, optimizer, sinks=[], store=tmp_path)
    done = []

    def train():
        with watch:
            for number in range(1_000):
                if number == 3:
                    watch.errands.ask("stop", None, lambda text: None)
                step(model, optimizer)
                done.append(number)

    with pytest.raises(KeyboardInterrupt, match="stopped on request"):
        train()
    assert done == [0, 1, 2]
    assert watch.closed
    report = watch.report()
    assert report["run"]["status"] == "healthy"
    assert report["run"]["exit"]["code"] == 130
    (event,) = [event for event in report["events"] if event["event_type"] == "request"]
    assert event["message"] == "stop: the training was stopped at the end of step 3"
    step(model, optimizer)  # nothing of it is left


def test_without_replay_and_without_capture_there_is_no_step_to_save(tmp_path, monkeypatch):
    model, optimizer = built()
    answers = []
    with sg.watch(model, optimizer, sinks=[], store=False, replay=False) as watch:
        watch.errands.ask("capture", None, answers.append)
    monkeypatch.setenv("SEISMOGRAD_CAPTURE", "0")
    with sg.watch(model, optimizer, sinks=[], store=False) as watch:
        watch.errands.ask("capture", None, answers.append)
    assert "replay is off in this run" in answers[0]
    assert "saving steps is off in this run" in answers[1]


def test_a_run_that_is_told_by_hand_is_asked_too():
    debugger = sg.TrainingDebugger()
    answers = []
    for kind in ("capture", "trace", "stop"):
        debugger.errands.ask(kind, None, answers.append)
    assert answers == [
        "this run is told of its steps by hand: a capture needs one under seismograd.watch()",
        "this run is told of its steps by hand: a trace needs one under seismograd.watch()",
    ]
    with pytest.raises(KeyboardInterrupt):
        debugger.step(0, 1.0, [[0.1, 0.2]], 0.1)


def test_a_capture_comes_though_the_budget_has_the_loop_asleep(tmp_path, monkeypatch):
    model, optimizer = built()
    answers = []
    with sg.watch(model, optimizer, sinks=[], store=tmp_path, strict=True) as watch:
        watch.governor.drain()
        watch.budget = 1e-6
        for _ in range(40):
            step(model, optimizer)
        assert watch._loop.asleep
        watch.errands.ask("capture", None, answers.append)
        for _ in range(4):
            step(model, optimizer)
    assert "was saved in" in answers[0]


@pytest.mark.parametrize("kind", ["scaler", "foreign", "closure"])
def test_loops_that_step_otherwise_are_stopped_too(tmp_path, kind):
    model, optimizer = built()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def trained():
        x = torch.randn(4, 8)
        if kind == "scaler":  # every step is skipped, so that no optimizer ever steps
            optimizer.zero_grad()
            scaler.scale(model(x).pow(2).mean() * float("inf")).backward()
            scaler.step(optimizer)
            scaler.update()
        elif kind == "foreign":
            model.zero_grad()
            model(x).pow(2).mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(0.01 * parameter.grad)
        else:

            def closure():
                optimizer.zero_grad()
                loss = model(x).pow(2).mean()
                loss.backward()
                return loss

            optimizer.step(closure)

    steps = []

    def train():
        with sg.watch(model, None if kind == "foreign" else optimizer, sinks=[], store=False, replay=False) as watch:
            for number in range(20):
                trained()
                steps.append(number)
                if number == 3:
                    watch.errands.ask("stop", None, lambda text: None)

    with pytest.raises(KeyboardInterrupt):
        train()
    assert len(steps) in (4, 5)


def test_weights_are_the_same_whatever_is_asked(tmp_path):
    def weights(asks):
        model, optimizer = built()
        torch.manual_seed(1)
        with sg.watch(model, optimizer, sinks=[], store=False, strict=True) as watch:
            watch.home = tmp_path / str(asks)
            for number in range(12):
                if asks and number == 2:
                    for kind, value in (("capture", None), ("trace", 2), ("level", "extreme"), ("clear", None)):
                        watch.errands.ask(kind, value, answers.append)
                step(model, optimizer)
        return [parameter.detach().clone() for parameter in model.parameters()]

    answers = []
    assert all(torch.equal(a, b) for a, b in zip(weights(False), weights(True), strict=True))
    assert len(answers) == 4
    assert any("was saved" in answer for answer in answers)
    assert any("were traced" in answer for answer in answers)


def test_requests_from_many_threads_are_all_answered(tmp_path):
    model, optimizer = built()
    answers = []
    with sg.watch(model, optimizer, sinks=[], store=False, strict=True) as watch:
        watch.home = tmp_path

        def ask(seed):
            for number in range(25):
                kind, value = [("level", "basic"), ("capture", None), ("budget", 0.1), ("clear", None)][
                    (number + seed) % 4
                ]
                watch.errands.ask(kind, value, answers.append)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            step(model, optimizer)
        for _ in range(3):
            step(model, optimizer)
    assert len(answers) == 100


SCRIPT = """
import sys, time
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
{before}
try:
    for number in range(100_000):
        optimizer.zero_grad()
        x = torch.randn(4, 8)
        nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
        time.sleep(0.005)
except KeyboardInterrupt:
    print("saved", flush=True)
    raise
"""


@pytest.fixture
def script(tmp_path):
    """A script that trains for minutes, in a process of its own, which does not outlive the test."""
    started = []

    def start(*command, before=""):
        (tmp_path / "train.py").write_text(SCRIPT.format(before=before))
        environment = {**os.environ, "SEISMOGRAD_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
        environment.pop("SEISMOGRAD_STORE", None)
        process = subprocess.Popen(
            [sys.executable, *command, "train.py"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_script_under_run_follows_what_another_process_asks(script, tmp_path):
    process = script("-m", "seismograd", "run", "--level", "basic", "--report", "out.json")
    with Asked(tmp_path / "home") as asked:
        assert asked.run.live
        assert "the level is extreme now" in asked.ask("level", "extreme")
        assert asked.run.refresh().level == "extreme"
        assert "was saved in" in asked.ask("capture")
        assert "were traced" in asked.ask("trace", 2)
        assert "the training was stopped at the end of step" in asked.ask("stop")
        out, _ = process.communicate(timeout=DEADLINE)
        assert process.returncode == -signal.SIGINT
        assert out == "saved\n"
        report = json.loads((tmp_path / "out.json").read_text())
        assert report["run"]["level"] == "extreme"
        kinds = [event["data"]["kind"] for event in asked.run.events(types=["request"])]
        assert kinds == ["level", "capture", "trace", "stop"]
        assert asked.run.refresh().ended is not None
        (kept,) = asked.run.captures()
    (tmp_path / "net.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "seismograd", "replay", str(kept.path), "--model", "net.py:make"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert "everything is finite, as in the run" in done.stdout
    assert done.returncode == 0


def test_a_plain_script_with_a_watch_is_stopped_by_ctrl_c(script, tmp_path):
    process = script(before="import seismograd as sg\nwatch = sg.watch(model, optimizer)")
    with Asked(tmp_path / "home") as asked:
        assert "was stopped" in asked.ask("stop")
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == -signal.SIGINT
    assert out == "saved\n"
    assert "KeyboardInterrupt: the training was stopped on request" in err


def test_every_rank_follows_and_the_first_answers(tmp_path):
    """Two processes that one launcher started, as torchrun would, without a word between them."""
    (tmp_path / "train.py").write_text(
        SCRIPT.format(before="import seismograd as sg\nwatch = sg.watch(model, optimizer, level='basic')").replace(
            "time.sleep(0.005)", "time.sleep(0.005)\n        if watch.level.value == 'extreme': break"
        )
        + "print(watch.level.value, watch.id)"
    )
    environment = {**os.environ, "SEISMOGRAD_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    environment.pop("SEISMOGRAD_STORE", None)
    ranks = [
        subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        with Asked(tmp_path / "home") as asked:
            deadline = time.monotonic() + DEADLINE
            while asked.run.refresh().ranks != [0, 1]:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert "the level is extreme now" in asked.ask("level", "extreme")
        told = [process.communicate(timeout=DEADLINE)[0].split() for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert [level for level, _ in told] == ["extreme", "extreme"]
    assert told[0] == told[1]


def test_a_saved_step_is_named_by_its_path_where_it_lies_elsewhere(tmp_path, monkeypatch, home):
    monkeypatch.chdir(tmp_path)
    for where, says in (("runs", lambda run: f"runs/{run}"), (home, lambda run: run)):
        model, optimizer = built()
        with sg.watch(model, optimizer, sinks=[], store=where) as watch:
            step(model, optimizer)
            step(model, optimizer, scale=float("nan"))
        lines = dict(remarks(next(each for each in watch.findings if "capture" in each.evidence)))
        assert lines["saved"] == f"seismograd replay {says(watch.id)} --model FILE.py:CLASS"
