"""Findings reach a webhook or a function once each, and whatever happens there never reaches the training."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.records import Finding, Severity, Where
from seismograd.sinks import Notify
from seismograd.sinks import notify as module
from seismograd.sinks.notify import notifiers
from seismograd.sinks.webhook import DeliveryError, Webhook, message, text

SECRET = "T00/B00/s3cr3t"


def finding(id_="nonfinite-loss", severity=Severity.CRITICAL, step=3, **more):
    return Finding(id=id_, severity=severity, step=step, message="the loss is NaN", **more)


class Receiver:
    """A real server: answers with the next of `codes`, then with 200; `None` hangs until the test is over."""

    def __init__(self):
        self.codes, self.got, self.headers, self.paths = [], [], [], []
        self.retry_after = None
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.got.append(body)
                outer.headers.append(dict(self.headers))
                outer.paths.append(self.path)
                code = outer.codes.pop(0) if outer.codes else 200
                if code is None:
                    outer.over.wait(20)
                    return
                self.send_response(code)
                if 300 <= code < 400:
                    self.send_header("Location", "/elsewhere")
                if outer.retry_after is not None:
                    self.send_header("Retry-After", outer.retry_after)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/{SECRET}"

    def close(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def receiver():
    there = Receiver()
    yield there
    there.close()


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(module, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(module, "TIMEOUT", 0.3)
    monkeypatch.setattr(module, "PATIENCE", 5.0)


class Told:
    """What a run hears from a sink."""

    def __init__(self, sink):
        self.notes, self.complaints = [], []
        sink.begin({"id": "run-1", "name": "train.py"}, self.note, self.complaints.append)

    def note(self, kind, words, level="info"):
        self.notes.append((kind, words, level))


def settle(sink):
    """Until nothing waits any more."""
    thread = sink._thread
    if thread is not None:
        thread.join(20)


def refused_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_finding_is_posted_once_whatever_happens_to_it_later(receiver, hasty):
    sink = Notify(receiver.url)
    Told(sink)
    sink.write_finding(finding("loss-plateau", Severity.INFO))
    sink.write_finding(finding(where=Where(module="encoder", file="train.py", line=42, code="h = h.sqrt()")))
    sink.update_finding(finding(count=2))
    sink.write_finding(finding())
    sink.update_finding(finding("loss-plateau", Severity.WARNING))  # it got worse
    sink.update_finding(finding("loss-plateau", Severity.WARNING, count=9))
    sink.close({})
    assert [body["finding"]["id"] for body in receiver.got] == ["nonfinite-loss", "loss-plateau"]
    first = receiver.got[0]
    assert first["text"].startswith("CRITICAL nonfinite-loss at step 3 of train.py (run-1)\nthe loss is NaN")
    assert first["run"] == {"id": "run-1", "name": "train.py"}
    assert first["finding"]["where"]["line"] in (42, None)  # the later one, if that came before it was posted
    assert receiver.headers[0]["Content-Type"] == "application/json"
    assert receiver.headers[0]["Idempotency-Key"] == first["id"] == "run-1/nonfinite-loss/0"
    assert sink.told == 2
    assert sink.lost == 0


def test_the_severity_may_be_set(receiver, hasty):
    sink = Notify(receiver.url, severity="critical")
    sink.write_finding(finding("loss-spike", Severity.WARNING))
    sink.write_finding(finding())
    sink.close({})
    assert [body["finding"]["id"] for body in receiver.got] == ["nonfinite-loss"]


@pytest.mark.parametrize("codes", [[500, 503], [429, 429], [502, 408], [None, 500]])
def test_a_receiver_that_fails_twice_is_tried_again(receiver, hasty, codes):
    receiver.codes = list(codes)
    sink = Notify(receiver.url)
    told = Told(sink)
    sink.write_finding(finding())
    sink.write_finding(finding("loss-spike"))
    settle(sink)
    sink.close({})
    assert [body["finding"]["id"] for body in receiver.got] == ["nonfinite-loss"] * 3 + ["loss-spike"]
    assert told.notes == told.complaints == []
    assert sink.told == 2


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 301, 302, 307])
def test_what_the_receiver_refuses_is_not_tried_again_nor_sent_elsewhere(receiver, hasty, code):
    receiver.codes = [code]
    sink = Notify(receiver.url)
    told = Told(sink)
    sink.write_finding(finding())
    sink.close({})
    assert receiver.paths == [f"/services/{SECRET}"]
    assert (sink.told, sink.lost) == (0, 1)
    assert told.complaints == [
        f"seismograd: http://127.0.0.1:{receiver.server.server_port}/*** was not told of nonfinite-loss (HTTP {code}),"
        " training goes on"
    ]
    assert SECRET not in repr((told.notes, told.complaints, sink))


def test_a_receiver_that_says_when_is_waited_for(receiver, monkeypatch):
    waits = []
    monkeypatch.setattr(Notify, "_pause", lambda self, seconds: waits.append(seconds) or True)
    receiver.codes, receiver.retry_after = [429, 503, 503], "7"
    sink = Notify(receiver.url)
    sink.write_finding(finding())
    sink.close({})
    assert waits == [7.0, 7.0, 7.0]
    assert sink.told == 1


def test_nobody_there_is_tried_five_times_and_said_once(hasty):
    sink = Notify(f"http://127.0.0.1:{refused_port()}/{SECRET}")
    told = Told(sink)
    attempts = []
    deliver = sink._to.deliver
    sink._to.deliver = lambda *args: attempts.append(1) or deliver(*args)
    sink.write_finding(finding())
    sink.write_finding(finding("loss-spike"))
    settle(sink)
    assert len(attempts) == 2 * module.ATTEMPTS
    assert len(told.notes) == 2
    assert len(told.complaints) == 1
    assert "Connection refused" in told.complaints[0]
    assert SECRET not in repr((told.notes, told.complaints))


def test_the_end_of_a_run_does_not_wait_for_a_receiver_that_hangs(receiver, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.3)
    receiver.codes = [None] * 10
    sink = Notify(receiver.url)
    told = Told(sink)
    for number in range(3):
        sink.write_finding(finding(f"fault-{number}"))
    sink.close({})
    assert sink.told == 0
    assert "was not told of 3 findings before the run was over" in told.complaints[0]
    receiver.over.set()


def test_what_waits_is_bounded(receiver, hasty, monkeypatch):
    monkeypatch.setattr(module, "MOST", 4)
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    receiver.codes = [None] * 10
    sink = Notify(receiver.url)
    told = Told(sink)
    for number in range(50):
        sink.write_finding(finding(f"fault-{number}"))
    assert len(sink._waiting) <= 4
    sink.close({})
    assert "50 findings" in told.complaints[-1]


def test_a_function_is_called_on_another_thread_and_its_errors_stay_there(hasty):
    seen = []

    def tell(found):
        seen.append((found.id, threading.current_thread() is threading.main_thread()))
        if found.id == "a":
            raise RuntimeError("broken")
        if found.id == "b" and len([1 for id_, _ in seen if id_ == "b"]) < 3:
            raise ConnectionError("away")

    sink = Notify(tell)
    told = Told(sink)
    for id_ in ("a", "b", "c"):
        sink.write_finding(finding(id_))
    settle(sink)
    sink.close({})
    assert seen == [("a", False), ("b", False), ("b", False), ("b", False), ("c", False)]
    assert told.complaints == [
        f"seismograd: {tell.__qualname__} was not told of a (RuntimeError: broken), training goes on"
    ]


def test_the_end_waits_for_all_threads(hasty, monkeypatch):
    class Slow(threading.Thread):
        def run(self):
            super().run()
            time.sleep(next(pauses, 0.0))

    monkeypatch.setattr(threading, "Thread", Slow)
    told, threads, pauses = [], [], iter([0.5])
    sink = Notify(told.append)
    Told(sink)
    for id_ in ("a", "b"):
        sink.write_finding(finding(id_))
        threads.append(sink._thread)
        while sink._works:
            time.sleep(0.01)
    sink.close({})
    assert [each.id for each in told] == ["a", "b"]
    assert [each.is_alive() for each in threads] == [False, False]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_what_ends_a_program_does_not_end_the_telling(hasty, error):
    told = []

    def tell(found):
        told.append(found.id)
        if found.id == "a":
            raise error

    sink = Notify(tell)
    heard = Told(sink)
    sink.write_finding(finding("a"))
    sink.write_finding(finding("b"))
    sink.close({})
    assert told == ["a", "b"]
    assert (sink.told, sink.lost) == (1, 1)
    assert type(error).__name__ in heard.complaints[0]


def test_a_coroutine_function_is_awaited(hasty):
    seen = []

    async def tell(found):
        seen.append(found.id)

    sink = Notify(tell)
    sink.write_finding(finding())
    sink.close({})
    assert seen == ["nonfinite-loss"]


def test_a_login_in_the_address_goes_into_a_header(receiver, hasty):
    sink = Notify(receiver.url.replace("http://", "http://me:p%40ss@"))
    sink.write_finding(finding())
    sink.close({})
    assert receiver.headers[0]["Authorization"] == "Basic bWU6cEBzcw=="
    assert "p%40ss" not in repr(sink)


def test_a_name_calls_nobody_and_numbers_are_strict():
    nasty = finding(
        where=Where(module="<!channel> @everyone"), evidence={"value": float("nan")}, recommendations=["try @here"]
    )
    body = message(nasty, {"id": "r", "name": "<script>"})
    assert "<" not in body["text"]
    assert "@everyone" not in body["text"]
    assert body["finding"]["where"]["module"] == "<!channel> @everyone"
    assert json.loads(json.dumps(body, allow_nan=False))["finding"]["evidence"]["value"] == "NaN"
    long = finding(recommendations=["x" * 10_000])
    assert len(text(long, {})) <= 1900


def test_what_follows_from_another_finding_says_so():
    assert "It follows from lr-too-high." in text(finding(evidence={"because": "lr-too-high"}), {})


@pytest.mark.parametrize(
    "url", ["ftp://x/y", "https://", "http://[", "hooks.slack.com/services/x", "http://a b/c", "x"]
)
def test_what_is_no_address_is_refused_without_its_path(url):
    with pytest.raises(ValueError, match="give an address that begins with https://") as told:
        Webhook(url)
    assert "services" not in str(told.value)


def test_a_wrong_receiver_is_said_at_once():
    with pytest.raises(TypeError, match="notify is 3: give an address"):
        notifiers(3)
    with pytest.raises(ValueError, match="there is none called 'nothing' in 'json'"):
        notifiers("json:nothing")
    with pytest.raises(ValueError, match="cannot be imported"):
        notifiers("no_such_module_here:tell")
    with pytest.raises(ValueError, match="severity 'loud' is unknown"):
        Notify(print, "loud")
    assert [each.receiver for each in notifiers(["json:dumps", print])] == ["dumps", "print"]


def test_the_reason_names_no_address():
    with pytest.raises(DeliveryError) as told:
        Webhook("http://no-such-host.invalid/s3cr3t").deliver(finding(), {}, 2.0)
    assert "s3cr3t" not in str(told.value)
    assert told.value.wait == 0.0


def sick(watch):
    """Trains until the loss is NaN."""
    model, optimizer = watch
    for step in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 3)).pow(2).mean() * (float("nan") if step == 4 else 1.0)
        loss.backward()
        optimizer.step()


def trained():
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), 0.01)


def test_watch_tells_of_what_it_finds(receiver, hasty):
    model, optimizer = trained()
    calls = []
    with sg.watch(model, optimizer, notify=[receiver.url, calls.append], sinks=[], store=False, name="mine") as watch:
        sick((model, optimizer))
    ids = [body["finding"]["id"] for body in receiver.got]
    grave = {found.id for found in watch.findings if found.severity is not Severity.INFO}
    assert "nonfinite-loss" in ids
    assert sorted(ids) == sorted(grave)
    assert {found.id for found in calls} == grave
    assert receiver.got[0]["run"] == {"id": watch.id, "name": "mine"}
    assert not [thread for thread in threading.enumerate() if thread.name == "seismograd-notify"]


def test_a_receiver_that_refuses_leaves_training_as_it_is(receiver, hasty):
    receiver.codes = [404] * 50

    def weights(**more):
        model, optimizer = trained()
        with sg.watch(model, optimizer, sinks=[], store=False, **more) as watch:
            for _ in range(5):
                optimizer.zero_grad()
                model(torch.ones(4, 3)).pow(2).mean().backward()
                optimizer.step()
        return [parameter.detach().clone() for parameter in model.parameters()], watch

    plain, _ = weights()
    told, _ = weights(notify=receiver.url)
    assert all(torch.equal(a, b) for a, b in zip(plain, told, strict=True))
    model, optimizer = trained()
    with (
        pytest.warns(RuntimeWarning, match=r"was not told of .* \(HTTP 404\), training goes on"),
        sg.watch(model, optimizer, sinks=[], store=False, notify=receiver.url) as watch,
    ):
        sick((model, optimizer))
    (event, *_) = [event for event in watch.report()["events"] if event["event_type"] == "notify"]
    assert SECRET not in json.dumps(watch.report())
    assert "HTTP 404" in event["message"]


SCRIPT = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 3)).pow(2).mean() * (float("nan") if step == 4 else 1.0)
    loss.backward()
    optimizer.step()
"""


def seismograd(tmp_path, *args, **more):
    environment = {**os.environ, "SEISMOGRAD_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "seismograd", *args],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
        env=environment,
        **more,
    )


def test_run_tells_a_webhook_and_a_function_of_the_scripts_own(tmp_path, receiver):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "mine.py").write_text(
        "def tell(finding):\n    with open('told.txt', 'a') as file:\n        file.write(finding.id + '\\n')\n"
    )
    receiver.codes = [500]
    done = seismograd(
        tmp_path, "run", "--report", "out.json", "--notify", receiver.url, "--notify", "mine:tell", "train.py"
    )
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "out.json").read_text()
    assert SECRET not in report + done.stderr + done.stdout
    grave = sorted(each["id"] for each in json.loads(report)["findings"] if each["severity"] != "info")
    assert sorted((tmp_path / "told.txt").read_text().split()) == grave
    assert sorted({body["finding"]["id"] for body in receiver.got}) == grave
    assert len(receiver.got) == len(grave) + 1  # one was refused once
    assert receiver.got[0]["run"]["name"] == "train.py"
    for file in (tmp_path / "home").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


def test_run_goes_on_where_the_function_is_not_there(tmp_path):
    (tmp_path / "train.py").write_text("print('begin')" + SCRIPT + "print('end')")
    done = seismograd(tmp_path, "run", "--notify", "nowhere:tell", "train.py")
    assert done.returncode == 0
    assert done.stdout == "begin\nend\n"
    assert "notify='nowhere:tell' names a module that cannot be imported" in done.stderr


def test_run_refuses_what_is_no_receiver(tmp_path):
    (tmp_path / "train.py").write_text("print('begin')")
    done = seismograd(tmp_path, "run", "--notify", "hooks.slack.com/services/s3cr3t", "train.py")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--notify cannot post to 'hooks.slack.com/***'" in done.stderr


def test_the_config_names_receivers(tmp_path, receiver, hasty, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(f'[tool.seismograd]\nnotify = "{receiver.url}"\nnotify_on = "critical"\n')
    model, optimizer = trained()
    with sg.watch(model, optimizer, sinks=[], store=False) as watch:
        sick((model, optimizer))
    critical = {found.id for found in watch.findings if found.severity is Severity.CRITICAL}
    assert {body["finding"]["id"] for body in receiver.got} == critical
    with sg.watch(model, optimizer, sinks=[], store=False, notify=False):
        pass
    (tmp_path / "pyproject.toml").write_text("[tool.seismograd]\nnotify = 3\n")
    with pytest.raises(ValueError, match="notify takes an address"):
        sg.watch(model, optimizer)
    (tmp_path / "pyproject.toml").write_text("[tool.seismograd]\nnotify_on = 'loud'\n")
    with pytest.raises(ValueError, match="notify_on is 'loud'"):
        sg.watch(model, optimizer)
