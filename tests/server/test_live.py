"""The live stream: what arrives, when it ends, who shares what, and that a slow or lost listener costs nothing."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from seismograd.server import create_app, models, pollers
from seismograd.server import live as live_module
from seismograd.server.gate import Limits
from seismograd.server.serving import Server, bind

from .conftest import FREE, Writer

PATIENCE = 30.0


class Listening:
    """A stream, read event by event."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self.lines = answer.iter_lines()
        self.comments = 0
        self.id = ""

    def next(self) -> tuple[str, Any] | None:
        """The next event and its data; none at the end of the stream."""
        kind, data = "", ""
        for line in self.lines:
            if line.startswith(":"):
                self.comments += 1
            elif line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                data += line[6:]
            elif line.startswith("id: "):
                self.id = line[4:]
            elif not line and kind:
                return kind, json.loads(data, parse_constant=lambda word: pytest.fail(f"{word} is not strict JSON"))
        return None

    def until(self, enough: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """The batches up to the one that is enough."""
        seen = []
        while (event := self.next()) is not None:
            assert event[0] == "batch", event
            models.RunRow.model_validate(event[1]["run"])
            seen.append(event[1])
            if enough(event[1]):
                return seen
        raise AssertionError("the stream ended")


class Running:
    """A real server in a thread of this process."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.socket = bind("127.0.0.1", 0)
        self.server = Server(
            uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5), app.state.live, None
        )
        self.thread = threading.Thread(target=lambda: self.server.run(sockets=[self.socket]))
        self.thread.start()
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{self.socket.getsockname()[1]}", timeout=PATIENCE)

    @contextmanager
    def listen(self, run: str, headers: dict[str, str] | None = None, **query: Any) -> Iterator[Listening]:
        with self.client.stream("GET", f"/api/runs/{run}/live", params=query, headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert "no-cache" in answer.headers["cache-control"]
            yield Listening(answer)

    @property
    def streams(self) -> int:
        return int(self.app.state.live.streams)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end(self) -> None:
        """Ends the server; the client stays, for those who still read what was sent."""
        self.server.should_exit = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()

    def stop(self) -> None:
        self.end()
        self.client.close()


@pytest.fixture
def running(store: Path) -> Iterator[Running]:
    made = Running(create_app(store, limits=FREE))
    yield made
    made.stop()


def steps_of(batches: list[dict[str, Any]], name: str = "loss") -> list[int]:
    return [step for batch in batches for step in batch["series"].get(name, {"steps": []})["steps"]]


def reached(step: int, name: str = "loss") -> Callable[[dict[str, Any]], bool]:
    return lambda batch: step in batch["series"].get(name, {"steps": []})["steps"]


# -- what arrives ------------------------------------------------------------------------------------------------------


def test_a_run_that_is_over_says_so_and_closes(client: TestClient, ended: Writer) -> None:
    with client.stream("GET", f"/api/runs/{ended.run}/live", params={"name": "loss"}) as answer:
        stream = Listening(answer)
        hello, over, nothing = stream.next(), stream.next(), stream.next()
    assert hello is not None
    assert over is not None
    assert (hello[0], over[0], nothing) == ("hello", "ended", None)
    assert models.RunRow.model_validate(hello[1]).findings.critical == 1
    assert over[1]["state"] == "ended"


def test_every_step_arrives_once(running: Running, live: Writer) -> None:
    with running.listen(live.run, name=["loss", "grad/norm"]) as stream:
        hello = stream.next()
        assert hello is not None
        assert (hello[0], hello[1]["id"], hello[1]["state"]) == ("hello", live.run, "live")
        for _ in range(5):
            live.train(10)
            live.flush()
        batches = stream.until(reached(54))
        assert steps_of(batches) == steps_of(batches, "grad/norm") == list(range(5, 55))
        assert batches[-1]["run"]["steps"] == 55
        live.end()
        while (event := stream.next()) is not None and event[0] == "batch":
            assert steps_of([event[1]]) == []
        assert event is not None
        assert (event[0], event[1]["state"]) == ("ended", "ended")
        assert stream.next() is None


def test_values_that_are_none_arrive_too(running: Running, live: Writer) -> None:
    with running.listen(live.run, name="loss") as stream:
        stream.next()
        live.train(1, loss=math.nan)
        live.train(1, loss=-math.inf)
        live.flush()
        batches = stream.until(reached(6))
        assert [value for batch in batches for value in batch["series"]["loss"]["values"]] == ["NaN", "-Infinity"]


def test_findings_events_and_requests_arrive_when_they_change(running: Running, live: Writer) -> None:
    with running.listen(live.run) as stream:
        stream.next()
        live.find()
        live.log("look here", "own")
        live.flush()
        batches = stream.until(lambda batch: bool(batch["findings"]))
        finding = models.FindingShape.model_validate(batches[-1]["findings"][0])
        assert finding.id == "nonfinite-loss"
        assert finding.page is not None
        assert batches[-1]["run"]["findings"]["critical"] == 1
        if not any(batch["events"] for batch in batches):
            batches += stream.until(lambda batch: bool(batch["events"]))
        assert [event["message"] for batch in batches for event in batch["events"]] == ["look here"]

        running.client.post(f"/api/runs/{live.run}/requests", json={"kind": "level", "value": "extreme"})
        told = stream.until(lambda batch: any(each["answer"] for each in batch["requests"]))
        assert told[-1]["requests"][-1]["answer"] == "level is done"
        assert not any(batch["findings"] for batch in told), "it has not changed"

        live.find(count=2, last_step=9)
        live.flush()
        again = stream.until(lambda batch: bool(batch["findings"]))
        assert [(each["id"], each["count"]) for each in again[-1]["findings"]] == [("nonfinite-loss", 2)]
        assert again[-1]["requests"] == []


def test_many_steps_at_once_are_thinned_and_keep_their_extremes(running: Running, live: Writer) -> None:
    with running.listen(live.run, name="loss") as stream:
        stream.next()
        live.train(1500)
        live.train(1, loss=1e6)
        live.train(1499)
        live.flush()
        batches = stream.until(lambda batch: bool(steps_of([batch])) and max(steps_of([batch])) == 3004)
        for batch in batches:
            assert len(batch["series"].get("loss", {"steps": []})["steps"]) <= 500
        values = [value for batch in batches for value in batch["series"].get("loss", {"values": []})["values"]]
        assert max(values) == 1e6


def test_a_rank_of_its_own(running: Running, write: Callable[..., Writer]) -> None:
    writers = [write("20260101-101500-aaaaaa", "ranks", rank=rank) for rank in (0, 1)]
    for writer in writers:
        writer.train(3)
        writer.flush()
    with running.listen(writers[0].run, name="loss", rank=1) as stream:
        stream.next()
        writers[0].train(5, loss=0.0)
        writers[0].flush()
        writers[1].train(5, loss=1.0)
        writers[1].flush()
        batches = stream.until(reached(7))
        assert [value for batch in batches for value in batch["series"].get("loss", {"values": []})["values"]] == [
            1.0
        ] * 5
        writers[1].find(rank=1)
        writers[1].flush()
        assert stream.until(lambda batch: bool(batch["findings"]))[-1]["findings"][0]["rank"] == 1


def test_a_stream_goes_on_where_it_broke_off(running: Running, live: Writer) -> None:
    with running.listen(live.run, name="loss") as stream:
        stream.next()
        live.train(10)
        live.log("one")
        live.flush()
        stream.until(reached(14))
        mark = stream.id
    live.train(10)
    live.log("two")
    live.find()
    live.flush()
    with running.listen(live.run, {"Last-Event-ID": mark}, name="loss") as stream:
        stream.next()
        batches = stream.until(reached(24))
        assert steps_of(batches) == list(range(15, 25))
        assert "two" in [event["message"] for batch in batches for event in batch["events"]]
        assert "one" not in [event["message"] for batch in batches for event in batch["events"]]
        assert [each["id"] for batch in batches for each in batch["findings"]] == ["nonfinite-loss"]


def test_a_page_that_has_a_batch_gets_what_is_newer(running: Running, live: Writer) -> None:
    batch = running.client.get(f"/api/runs/{live.run}").json()["batch"]
    live.train(10)
    live.flush()
    with running.listen(live.run, name="loss", **{"from": batch}) as stream:
        stream.next()
        assert set(steps_of(stream.until(reached(14)))) >= set(range(5, 15))
    with running.listen(live.run, name="loss", after=11) as stream:
        stream.next()
        live.train(1)
        live.flush()
        assert steps_of(stream.until(reached(15))) == [12, 13, 14, 15]


@pytest.mark.parametrize("mark", ["", "x", "1.2", "1.2.3.4", "a.b.c", "9" * 99, "1.-5.0", "\u0661.1.1"])
def test_a_mark_that_is_none_does_no_harm(client: TestClient, ended: Writer, mark: str) -> None:
    headers = {"Last-Event-ID": mark.encode()}
    with client.stream("GET", f"/api/runs/{ended.run}/live", params={"name": "loss"}, headers=headers) as answer:
        stream = Listening(answer)
        kinds = []
        while (event := stream.next()) is not None:
            kinds.append(event[0])
    assert (kinds[0], kinds[-1]) == ("hello", "ended")


def test_silence_is_broken_by_comments(running: Running, live: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "HEARTBEAT", 0.1)
    with running.listen(live.run) as stream:
        stream.next()
        for line in stream.lines:
            if line.startswith(":"):
                break
        else:
            raise AssertionError("no comment came")


# -- how it ends -------------------------------------------------------------------------------------------------------


def test_a_run_that_is_killed_ends_its_streams(running: Running, live: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    with running.listen(live.run) as stream:
        stream.next()
        monkeypatch.setattr("seismograd.store.run.ALIVE", -1.0)
        while (event := stream.next()) is not None and event[0] == "batch":
            pass
        assert event is not None
        assert (event[0], event[1]["state"]) == ("ended", "lost")
        assert stream.next() is None


def test_a_run_that_is_forgotten_ends_its_streams(running: Running, live: Writer, store: Path) -> None:
    from seismograd.store import open_store

    with running.listen(live.run) as stream:
        stream.next()
        live.end()
        with open_store(store) as opened:
            opened.delete(live.run)
        kinds = []
        while (event := stream.next()) is not None:
            kinds.append(event[0])
        assert kinds[-1] == "ended"


def test_the_end_of_the_server_ends_all_streams(store: Path, live: Writer) -> None:
    running = Running(create_app(store))
    ended: list[Any] = []

    def listen() -> None:
        with running.listen(live.run) as stream:
            while stream.next() is not None:
                pass
            ended.append(True)

    threads = [threading.Thread(target=listen) for _ in range(5)]
    for thread in threads:
        thread.start()
    running.wait_for(lambda: running.streams == 5)
    running.end()
    for thread in threads:
        thread.join(PATIENCE)
    running.stop()
    assert ended == [True] * 5, "each ended as a stream ends, not as one that is cut off"


def test_a_listener_that_goes_away_is_noticed(running: Running, live: Writer) -> None:
    with running.listen(live.run) as stream:
        stream.next()
        assert running.streams == 1
        assert len(running.app.state.live._pollers) == 1
    running.wait_for(lambda: running.streams == 0)
    assert running.app.state.live._pollers == {}


def test_streams_have_a_limit(store: Path, live: Writer) -> None:
    running = Running(create_app(store, limits=Limits(streams=2)))
    try:
        with running.listen(live.run) as one, running.listen(live.run) as two:
            assert one.next()
            assert two.next()
            refused = running.client.get(f"/api/runs/{live.run}/live")
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too-many-streams")
        running.wait_for(lambda: running.streams == 0)
        with running.listen(live.run) as again:
            assert again.next()
    finally:
        running.stop()


def test_a_store_that_fails_for_a_while_ends_no_stream(
    running: Running, live: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seismograd.server.shelf import Shelf
    from seismograd.store import StoreError

    failed = threading.Event()

    def broken(*_: Any) -> Any:
        failed.set()
        raise StoreError("gone for a while")

    monkeypatch.setattr(pollers, "PATIENCE", 0.05)
    with running.listen(live.run, name="loss") as stream:
        stream.next()
        with monkeypatch.context() as patch:
            patch.setattr(Shelf, "run", broken)
            assert failed.wait(PATIENCE)
        live.train(1)
        live.flush()
        assert steps_of(stream.until(reached(5))) == [5]


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_listeners_of_a_run_share_one_look(running: Running, live: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    message = pollers.Poller._message

    def counted(poller: pollers.Poller, seen: Any, cursor: Any, rank: int) -> Any:
        made.append((id(poller), cursor))
        return message(poller, seen, cursor, rank)

    monkeypatch.setattr(pollers.Poller, "_message", counted)
    got: list[list[int]] = []
    ready = threading.Barrier(21)

    def listen() -> None:
        with running.listen(live.run, name="loss") as stream:
            stream.next()
            ready.wait(PATIENCE)
            got.append(steps_of(stream.until(reached(24))))

    threads = [threading.Thread(target=listen) for _ in range(20)]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE)
    live.train(20)
    live.flush()
    for thread in threads:
        thread.join(PATIENCE)
    assert got == [list(range(5, 25))] * 20
    assert len({poller for poller, _ in made}) == 1
    assert len(made) == len(set(made)) < 20


def test_a_slow_listener_is_waited_for_and_nothing_is_heaped_up(store: Path, live: Writer) -> None:
    """Straight at the app: `send` is what a socket is whose other side does not read."""
    app = create_app(store)
    sent: list[dict[str, Any]] = []

    async def go() -> None:
        stuck, gone = asyncio.Event(), asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if len(sent) > 2:  # the start, the greeting, and then it hangs
                await stuck.wait()

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": f"/api/runs/{live.run}/live",
            "query_string": b"name=loss",
            "headers": [(b"host", b"127.0.0.1")],
            "client": ("127.0.0.1", 1),
        }
        stream = asyncio.create_task(app(scope, receive, send))
        while len(sent) < 2:
            await asyncio.sleep(0.01)
        poller = next(iter(app.state.live._pollers.values()))
        before = (await poller.seen()).version
        for _ in range(12):
            live.train(200)
            await asyncio.to_thread(live.flush)
            version = (await poller.seen()).version
            while (await poller.seen()).version == version:
                await asyncio.sleep(0.02)
            assert len(poller._made) <= 1
        assert (await poller.seen()).version >= before + 12
        assert len(sent) == 3, "one message waits to be taken"
        stuck.set()
        while not any(b"2404" in message.get("body", b"") for message in sent):
            await asyncio.sleep(0.02)
        assert len(sent) <= 8, "it was told what it had missed in few messages, not in twelve"
        gone.set()
        await stream

    asyncio.run(asyncio.wait_for(go(), 2 * PATIENCE))
    assert app.state.live.streams == 0
