"""`/api/runs` and what lies below it: each answer, held to its model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from seismograd.records import Severity
from seismograd.server import create_app, models
from seismograd.store import open_store

from .conftest import ADDRESS, HOSTILE, Writer, report


def told(client: TestClient, path: str, model: Any, **query: Any) -> Any:
    """The answer, which is strict JSON and has the shape that the schema promises."""
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["seismograd-api"] == "1"
    value = json.loads(answer.content, parse_constant=lambda word: pytest.fail(f"{word} is not strict JSON"))
    TypeAdapter(model).validate_python(value)
    return value


def test_what_answers_here(client: TestClient, store: Path) -> None:
    about = told(client, "/api", models.Api)
    assert about["store"].endswith("seismograd.db")
    assert about["plotly"].startswith("/static/plotly.min.js?v=")
    assert not store.exists(), "looking makes nothing"


def test_a_store_that_is_not_there_yet_is_an_empty_one(client: TestClient, write: Callable[..., Writer]) -> None:
    assert told(client, "/api/runs", models.Runs) == {"runs": [], "total": 0, "limit": 50, "offset": 0}
    assert client.get("/api/runs/last").json()["error"]["code"] == "no-such-run"
    assert client.get("/metrics").status_code == 200
    writer = write("20260101-101500-aaaaaa")
    writer.train(1)
    writer.flush()
    assert told(client, "/api/runs", models.Runs)["total"] == 1


def test_a_store_that_was_made_anew_is_seen(client: TestClient, store: Path, write: Callable[..., Writer]) -> None:
    import shutil

    def record(run: str) -> None:
        writer = write(run)
        writer.train(1)
        writer.end()

    record("20260101-101500-aaaaaa")
    assert told(client, "/api/runs", models.Runs)["runs"][0]["id"].endswith("aaaaaa")
    shutil.rmtree(store)
    record("20260101-101500-bbbbbb")
    assert [run["id"][-6:] for run in told(client, "/api/runs", models.Runs)["runs"]] == ["bbbbbb"]


def test_something_else_in_its_place_is_said(store: Path) -> None:
    store.mkdir()
    (store / "seismograd.db").write_bytes(b"no database at all " * 100)
    with TestClient(create_app(store), base_url=ADDRESS) as client:
        answer = client.get("/api/runs")
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "store-unavailable"
        assert "SELECT" not in answer.text


def test_what_is_damaged_is_said(client: TestClient, ended: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    from seismograd.store import Run
    from seismograd.store.codec import DamagedError

    def broken(*_: Any, **__: Any) -> Any:
        raise DamagedError("a blob has the wrong checksum")

    monkeypatch.setattr(Run, "compare", broken)
    answer = client.get(f"/api/runs/{ended.run}/compare/{ended.run}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "damaged")


def test_the_list(client: TestClient, ended: Writer, live: Writer) -> None:
    listed = told(client, "/api/runs", models.Runs)
    second, first = listed["runs"]
    assert (listed["total"], first["id"], second["id"]) == (2, ended.run, live.run)
    assert first["state"] == "ended"
    assert first["status"] == "critical"
    assert first["findings"] == {"critical": 1, "warning": 1, "info": 0}
    assert (second["state"], second["level"], second["overhead"], second["steps"]) == ("live", "basic", 0.004, 5)
    assert 0 < len(first["spark"]) <= 40
    assert first["spark"][-2:] == ["NaN", "Infinity"]


def test_the_small_curve_of_a_long_run_has_its_beginning(client: TestClient, live: Writer) -> None:
    live.train(3, loss=1000.0)
    live.train(400, loss=1.0)
    live.flush()
    spark = told(client, "/api/runs", models.Runs)["runs"][0]["spark"]
    assert len(spark) <= 40
    assert spark[0] > 10 > spark[-1]


def test_the_small_curve_follows_the_run(client: TestClient, live: Writer) -> None:
    before = told(client, "/api/runs", models.Runs)["runs"][0]["spark"]
    live.train(3, loss=math.nan)
    live.flush()
    after = told(client, "/api/runs", models.Runs)["runs"][0]["spark"]
    assert (len(before), after[-3:]) == (5, ["NaN"] * 3)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"text": "FIRST"}, ["first"]),
        ({"text": "bbbbbb"}, ["second"]),
        ({"text": "%"}, []),
        ({"status": "critical"}, ["first"]),
        ({"status": "healthy", "state": "live"}, ["second"]),
        ({"state": "ended"}, ["first"]),
        ({"state": "lost"}, []),
        ({"text": "", "status": "", "state": ""}, ["second", "first"]),
    ],
)
def test_the_list_is_filtered(
    client: TestClient, ended: Writer, live: Writer, query: dict[str, str], names: list[str]
) -> None:
    listed = told(client, "/api/runs", models.Runs, **query)
    assert [run["name"] for run in listed["runs"]] == names
    assert listed["total"] == len(names)


def test_the_list_comes_in_pages(client: TestClient, write: Callable[..., Writer]) -> None:
    for at in range(7):
        writer = write(f"20260101-10150{at}-aaaaaa", f"run {at}")
        writer.train(1)
        writer.end()
    pages = [told(client, "/api/runs", models.Runs, limit=3, offset=offset) for offset in (0, 3, 6, 9)]
    assert [[run["name"][-1] for run in page["runs"]] for page in pages] == [
        ["6", "5", "4"],
        ["3", "2", "1"],
        ["0"],
        [],
    ]
    assert {page["total"] for page in pages} == {7}
    filtered = told(client, "/api/runs", models.Runs, limit=2, offset=2, text="run")
    assert ([run["name"] for run in filtered["runs"]], filtered["total"]) == (["run 4", "run 3"], 7)


def test_a_run_that_was_killed_is_lost(
    client: TestClient, write: Callable[..., Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = write("20260101-101500-aaaaaa")
    writer.train(3)
    writer.flush()
    monkeypatch.setattr("seismograd.store.run.ALIVE", -1.0)
    monkeypatch.setattr("seismograd.store.store.ALIVE", -1.0)
    assert told(client, f"/api/runs/{writer.run}", models.RunDetail)["state"] == "lost"
    answer = client.post(f"/api/runs/{writer.run}/requests", json={"kind": "stop"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not-live")


def test_one_run(client: TestClient, ended: Writer) -> None:
    run = told(client, f"/api/runs/{ended.run}", models.RunDetail)
    assert run["names"] == ["loss", "grad/norm", "lr/0"]
    assert run["tables"] == {"gradient": ["norm", "max"]}
    assert run["whole"] == [[0, 31]]
    assert run["about"] == {"host": "here"}
    assert run["summary"]["total_steps"] == 32
    assert told(client, "/api/runs/last", models.RunDetail)["id"] == ended.run
    assert told(client, f"/api/runs/{ended.run[:10]}", models.RunDetail)["id"] == ended.run


def test_its_captures_are_listed(client: TestClient, ended: Writer, store: Path) -> None:
    folder = store / ended.run / "step-000007-nonfinite-loss"
    folder.mkdir(parents=True)
    (folder / "capture.json").write_text("{}")
    captures = told(client, f"/api/runs/{ended.run}", models.RunDetail)["captures"]
    assert [(each["step"], each["finding"]) for each in captures] == [(7, "nonfinite-loss")]


@pytest.mark.parametrize("run", ["20260101-101500-zzzzzz", "x", "LAST"])
def test_a_run_that_is_not_there(client: TestClient, ended: Writer, run: str) -> None:
    for path in ("", "/series?name=loss", "/heat", "/findings", "/events", "/report", "/page", "/live", "/requests"):
        answer = client.get(f"/api/runs/{run}{path}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no-such-run"), path


@pytest.mark.parametrize(
    "run", ["..", "%2e%2e", "..%5c..", "a%00b", "a.db", "~", "%3Cscript%3E", "a" * 65, "-x", "a b"]
)
def test_what_is_no_id_is_not_looked_for(client: TestClient, ended: Writer, run: str) -> None:
    for method in ("GET", "DELETE"):
        answer = client.request(method, f"{ADDRESS}/api/runs/{run}", headers={"X-Seismograd": "1"})
        assert answer.status_code in (404, 405, 422) or answer.url.path == "/api"


def test_a_beginning_that_is_several(client: TestClient, ended: Writer, live: Writer) -> None:
    answer = client.get("/api/runs/2026")
    assert answer.status_code == 404
    assert ended.run in answer.json()["error"]["message"]


def test_a_run_is_forgotten_when_it_is_over(client: TestClient, store: Path, ended: Writer, live: Writer) -> None:
    headers = {"X-Seismograd": "1"}
    assert client.delete("/api/runs/20260101", headers=headers).status_code == 404, "not by its beginning"
    assert client.delete("/api/runs/last", headers=headers).status_code == 404
    assert client.delete(f"/api/runs/{live.run}", headers=headers).json()["error"]["code"] == "still-live"
    answer = client.delete(f"/api/runs/{ended.run}", headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")
    assert [run.id for run in open_store(store).runs()] == [live.run]
    assert client.delete(f"/api/runs/{ended.run}", headers=headers).status_code == 404


# -- curves ------------------------------------------------------------------------------------------------------------


def test_curves(client: TestClient, ended: Writer) -> None:
    path = f"/api/runs/{ended.run}/series"
    curves = told(client, path, models.Curves, name=["loss", "grad/norm", "never"])["series"]
    assert set(curves) == {"loss", "grad/norm"}
    loss = curves["loss"]
    assert loss["steps"] == loss["first"] == list(range(32))
    assert loss["last"][:2] == [1.0, 0.5]
    assert loss["last"][-2:] == ["NaN", "Infinity"]
    assert loss["bad"] == [0] * 30 + [1, 1]
    assert loss["width"] == 1
    part = told(client, path, models.Curves, name="grad/norm", start=10, stop=12)["series"]["grad/norm"]
    assert part["steps"] == [10, 11, 12]


def test_a_spike_is_in_every_thinned_curve(client: TestClient, write: Callable[..., Writer]) -> None:
    writer = write("20260101-101500-aaaaaa")
    writer.train(2000)
    writer.train(1, loss=1e9)
    writer.train(2000)
    writer.flush()
    for points in (1, 2, 10, 100, 1000):
        curve = told(client, f"/api/runs/{writer.run}/series", models.Curves, name="loss", points=points)["series"][
            "loss"
        ]
        assert max(curve["high"]) == 1e9
        assert len(curve["steps"]) <= points
        assert sum(curve["count"]) == 4001


def test_curves_of_all_ranks(client: TestClient, store: Path, write: Callable[..., Writer]) -> None:
    for rank in (0, 1):
        writer = write("20260101-101500-aaaaaa", "ranks", rank=rank)
        writer.train(4, loss=float(rank))
        writer.flush()
    path = f"/api/runs/{writer.run}"
    assert told(client, path, models.RunDetail)["ranks"] == [0, 1]
    ranks = told(client, f"{path}/series", models.Curves, name="loss", rank="all")["ranks"]
    assert {rank: curves["loss"]["last"] for rank, curves in ranks.items()} == {"0": [0.0] * 4, "1": [1.0] * 4}
    assert told(client, f"{path}/series", models.Curves, name="loss", rank=1)["series"]["loss"]["last"] == [1.0] * 4
    assert told(client, f"{path}/series", models.Curves, name="loss", rank=7) == {"series": {}}
    assert client.get(f"{path}/series", params={"name": "loss", "rank": "some"}).status_code == 422


def test_layers_over_steps(client: TestClient, ended: Writer) -> None:
    heat = told(client, f"/api/runs/{ended.run}/heat", models.HeatMap)
    assert heat["names"] == ["0.weight", HOSTILE[0]]
    assert heat["steps"] == list(range(32))
    assert heat["values"][0][:3] == [1.0, 2.0, 3.0]
    assert heat["values"][1][7] == "Infinity", "what is not finite; NaN is what was not read"
    few = told(client, f"/api/runs/{ended.run}/heat", models.HeatMap, column="max", samples=4, start=8)
    assert len(few["steps"]) <= 4
    assert few["values"][0][-1] == 64.0
    answer = client.get(f"/api/runs/{ended.run}/heat", params={"kind": "update"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no-such-name")
    assert "gradient (norm, max)" in answer.json()["error"]["hint"]


# -- findings, events, reports -----------------------------------------------------------------------------------------


def test_findings_come_in_order_and_with_their_page(client: TestClient, ended: Writer) -> None:
    worst, other = told(client, f"/api/runs/{ended.run}/findings", models.Findings)["findings"]
    assert (worst["id"], worst["severity"], worst["where"]["code"]) == ("nonfinite-loss", "critical", "<b>")
    assert worst["evidence"] == {"norm": "Infinity", "name": HOSTILE[0]}
    assert worst["page"]["title"] == "The loss is NaN or infinite."
    assert worst["page"]["why"]
    assert worst["page"]["try"]
    assert other["message"] == HOSTILE[0]


def test_findings_come_in_parts(client: TestClient, ended: Writer) -> None:
    path = f"/api/runs/{ended.run}/findings"
    whole = told(client, path, models.Findings)
    parts = [told(client, path, models.Findings, limit=1, offset=at) for at in range(3)]
    assert [each["id"] for part in parts for each in part["findings"]] == [each["id"] for each in whole["findings"]]
    assert {part["total"] for part in parts} == {2}


def test_a_finding_of_a_users_own_detector_has_no_page(client: TestClient, live: Writer) -> None:
    live.find("my-own", severity=Severity.INFO)
    live.flush()
    assert told(client, f"/api/runs/{live.run}/findings", models.Findings)["findings"][0]["page"] is None


def test_events(client: TestClient, ended: Writer) -> None:
    path = f"/api/runs/{ended.run}/events"
    every = told(client, path, models.Events)
    first, second = (each for each in every["events"] if each["event_type"] in ("note", "warning"))
    assert (first["message"], first["data"]) == ("all is well", {"epoch": 1})
    assert (second["message"], second["data"]) == (HOSTILE[2], {"loss": "NaN"})
    assert every["next"] == every["events"][-1]["id"]
    assert told(client, path, models.Events, after=every["next"]) == {"events": [], "next": every["next"]}
    assert [each["id"] for each in told(client, path, models.Events, type="warning")["events"]] == [second["id"]]
    assert len(told(client, path, models.Events, type=["warning", "note"])["events"]) == 2
    assert [each["id"] for each in told(client, path, models.Events, level="warning")["events"]] == [second["id"]]
    assert [each["id"] for each in told(client, path, models.Events, text="ALL IS")["events"]] == [first["id"]]
    assert told(client, path, models.Events, text="%")["events"] == []
    assert told(client, path, models.Events, rank=3)["events"] == []


def test_events_come_in_pages(client: TestClient, live: Writer) -> None:
    for at in range(25):
        live.log(f"event {at}", "own")
    live.flush()
    seen, after = [], 0
    while page := told(client, f"/api/runs/{live.run}/events", models.Events, after=after, limit=10, type="own")[
        "events"
    ]:
        seen += [event["message"] for event in page]
        after = page[-1]["id"]
    assert seen == [f"event {at}" for at in range(25)]


def test_the_report(client: TestClient, ended: Writer, live: Writer) -> None:
    final = told(client, f"/api/runs/{ended.run}/report", models.Report)
    assert final == report(id=ended.run, status="critical")
    so_far = told(client, f"/api/runs/{live.run}/report", models.Report)
    assert (so_far["run"]["id"], so_far["run"]["steps"]) == (live.run, 5)


def test_the_page_is_a_file_to_download(client: TestClient, write: Callable[..., Writer]) -> None:
    writer = write("20260101-101500-aaaaaa", HOSTILE[0])
    writer.train(10)
    writer.end()
    answer = client.get(f"/api/runs/{writer.run}/page")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-disposition"] == (
        'attachment; filename="script-alert-1-script-20260101-101500-aaaaaa.html"'
    )
    assert "<script>alert(1)" not in answer.text


def test_two_runs_are_compared(client: TestClient, ended: Writer, write: Callable[..., Writer]) -> None:
    other = write("20260103-101500-cccccc")
    other.train(10)
    other.train(10, loss=5.0)
    other.flush()
    part = told(client, f"/api/runs/{ended.run}/compare/{other.run}", models.Comparison)
    assert (part["parted"]["quantity"], part["parted"]["step"]) == ("loss", 10)
    same = told(client, f"/api/runs/{ended.run}/compare/{ended.run}", models.Comparison)
    assert same["parted"] is None
    assert client.get(f"/api/runs/{ended.run}/compare/nope").status_code == 404


def test_hostile_names_pass_through_unharmed(client: TestClient, write: Callable[..., Writer], store: Path) -> None:
    for at, name in enumerate(HOSTILE):
        writer = write(f"20260101-10150{at}-aaaaaa", name)
        writer.train(2, **{name: 1.5})
        writer.log(name, name)
        writer.find(name, message=name, evidence={name: name})
        writer.flush()
    listed = told(client, "/api/runs", models.Runs)["runs"]
    assert [run["name"] for run in reversed(listed)] == list(HOSTILE)
    for run in listed:
        path, name = f"/api/runs/{run['id']}", run["name"]
        assert name in told(client, path, models.RunDetail)["names"]
        assert told(client, f"{path}/findings", models.Findings)["findings"][0]["evidence"] == {name: name}
        if len(name) <= 500:
            assert told(client, f"{path}/series", models.Curves, name=name)["series"][name]["last"] == [1.5, 1.5]
            assert told(client, f"{path}/events", models.Events, type=name)["events"][0]["message"] == name
    assert sorted(path.name for path in store.parent.iterdir()) == ["runs"], "nothing was made elsewhere"


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wish",
    [
        {"kind": "level", "value": "extreme"},
        {"kind": "budget", "value": 0.02},
        {"kind": "budget", "value": None},
        {"kind": "stop"},
        {"kind": "capture"},
        {"kind": "trace"},
        {"kind": "trace", "value": 3},
        {"kind": "clear"},
    ],
)
def test_a_live_run_is_asked(client: TestClient, live: Writer, wish: dict[str, Any]) -> None:
    answer = client.post(f"/api/runs/{live.run}/requests", json=wish)
    assert answer.status_code == 202
    request = models.Asked.model_validate(answer.json()).request
    assert (request.kind, request.value) == (wish["kind"], wish.get("value"))
    live.flush()
    assert live.heard == [(wish["kind"], wish.get("value"))]
    kept = told(client, f"/api/runs/{live.run}/requests", models.Requests)["requests"]
    assert [(each["id"], each["answer"]) for each in kept] == [(request.id, f"{wish['kind']} is done")]
    assert kept[0]["taken"] is not None


def test_requests_are_told_from_the_newest_on(client: TestClient, live: Writer) -> None:
    path = f"/api/runs/{live.run}/requests"
    asked = [client.post(path, json={"kind": "budget", "value": value}).json()["request"]["id"] for value in (0.1, 0.2)]
    newest = told(client, path, models.Requests, limit=1)["requests"]
    assert [each["id"] for each in newest] == asked[1:]
    older = told(client, path, models.Requests, limit=5, before=asked[1])["requests"]
    assert [each["id"] for each in older] == asked[:1]


@pytest.mark.parametrize(
    "wish",
    [
        {},
        [],
        {"kind": "explode"},
        {"kind": "level"},
        {"kind": "level", "value": "absurd"},
        {"kind": "level", "value": 3},
        {"kind": "budget", "value": 0},
        {"kind": "budget", "value": 1.5},
        {"kind": "budget", "value": "much"},
        {"kind": "budget", "value": True},
        {"kind": "trace", "value": 0},
        {"kind": "trace", "value": 1.5},
        {"kind": "trace", "value": 1e300},
        {"kind": "trace", "value": True},
        {"kind": "trace", "value": "long"},
        {"kind": "stop", "value": "now"},
        {"kind": "stop", "more": 1},
        {"kind": "stop", "value": {"a": 1}},
    ],
)
def test_what_cannot_be_asked_is_not_put_down(client: TestClient, live: Writer, wish: Any) -> None:
    answer = client.post(f"/api/runs/{live.run}/requests", json=wish)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "not-valid")
    assert told(client, f"/api/runs/{live.run}/requests", models.Requests) == {"requests": []}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"NaN",
        b'{"kind": "budget", "value": NaN}',
        b'{"kind": "budget", "value": 1e999}',
        b'{"kind": "trace", "value": NaN}',
        b'{"kind": "trace", "value": 1e999}',
        b"\xff",
    ],
)
def test_what_is_no_json_is_not_put_down(client: TestClient, live: Writer, body: bytes) -> None:
    answer = client.post(f"/api/runs/{live.run}/requests", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert told(client, f"/api/runs/{live.run}/requests", models.Requests) == {"requests": []}


def test_only_a_live_run_can_be_asked(client: TestClient, ended: Writer) -> None:
    answer = client.post(f"/api/runs/{ended.run}/requests", json={"kind": "stop"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not-live")


# -- explanations ------------------------------------------------------------------------------------------------------


def test_findings_are_explained(client: TestClient) -> None:
    every = told(client, "/api/explain", models.Catalogue)["findings"]
    assert {"nonfinite-loss", "blind-probe"} <= {each["id"] for each in every}
    one = told(client, "/api/explain/nonfinite-loss", models.Explained)
    assert one["markdown"].startswith("# nonfinite-loss")
    answer = client.get("/api/explain/nonfinite-los")
    assert (answer.status_code, answer.json()["error"]["hint"]) == (404, "did you mean nonfinite-loss?")


# -- ranks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def several(write: Callable[..., Writer]) -> Writer:
    """Five ranks, of which the third is slow, has a fault, and a loss that is far from the others'."""
    for rank in range(5):
        last = {"loss": math.nan if rank == 2 else 0.1 * rank, "time/step": 0.5 if rank == 2 else 0.1}
        state = {"status": "critical" if rank == 2 else "healthy", "host": f"node{rank // 4}", "pid": 10 + rank}
        writer = write("20260101-101500-aaaaaa", "ranks", rank=rank, **state, summary={"last": last})
        writer.train(8, loss=9.0 if rank == 2 else 1.0 + 0.001 * rank)
        writer.find("memory-leak", severity=Severity.WARNING, rank=rank)
        if rank == 2:
            writer.find(rank=rank)
        writer.end()
    return writer


def test_ranks_side_by_side_in_parts_and_sorted(client: TestClient, several: Writer) -> None:
    path = f"/api/runs/{several.run}/ranks"
    whole = told(client, path, models.Ranks)
    assert (whole["total"], [side["rank"] for side in whole["ranks"]]) == (5, [0, 1, 2, 3, 4])
    third = whole["ranks"][2]
    assert (third["status"], third["loss"], third["seconds"], third["host"]) == ("critical", "NaN", 0.5, "node0")
    assert (third["pid"], third["steps"], third["life"]) == (12, 8, "ended")
    assert third["findings"] == {"critical": 1, "warning": 1, "info": 0}
    part = told(client, path, models.Ranks, limit=2, offset=3)
    assert [side["rank"] for side in part["ranks"]] == [3, 4]

    def order(sort: str, descending: bool = False) -> list[int]:
        answer = told(client, path, models.Ranks, sort=sort, descending=descending)
        return [side["rank"] for side in answer["ranks"]]

    assert order("gravest")[0] == 2
    assert order("status", True) == order("findings", True) == order("seconds", True) == [2, 4, 3, 1, 0]
    assert order("loss") == [0, 1, 3, 4, 2], "NaN stands with the greatest"
    assert order("host", True)[0] == 4
    assert client.get(path, params={"sort": "name"}).status_code == 422


def test_a_run_of_one_rank_has_no_ranks_beside_it(client: TestClient, ended: Writer) -> None:
    assert told(client, f"/api/runs/{ended.run}/ranks", models.Ranks)["total"] == 0


def test_what_ranks_share_is_one_finding(client: TestClient, several: Writer) -> None:
    found = told(client, f"/api/runs/{several.run}/findings", models.Findings)
    assert [(each["id"], each["rank"], each["evidence"]) for each in found["findings"]] == [
        ("nonfinite-loss", 2, {}),
        ("memory-leak", 0, {"ranks": [0, 1, 2, 3, 4]}),
    ]
    assert found["total"] == 2
    counts = {"critical": 1, "warning": 1, "info": 0}
    assert told(client, f"/api/runs/{several.run}", models.RunDetail)["findings"] == counts
    assert told(client, "/api/runs", models.Runs)["runs"][0]["findings"] == counts
    report = told(client, f"/api/runs/{several.run}/report", models.Report)
    assert [side["status"] for side in report["ranks"]] == ["healthy", "healthy", "critical", "healthy", "healthy"]


def test_curves_of_some_ranks(client: TestClient, several: Writer) -> None:
    path = f"/api/runs/{several.run}/series"

    def asked(rank: str) -> list[str]:
        return list(told(client, path, models.Curves, name="loss", rank=rank)["ranks"])

    assert asked("all") == ["0", "1", "2", "3", "4"]
    assert asked("1-3") == ["1", "2", "3"]
    assert asked("4,0-1,1") == ["0", "1", "4"]
    assert asked("3,999999999") == ["3"]
    assert asked("7-9") == asked("3-1") == []
    for wrong in ("1-", "-1", "1,,2", "a", "1;2", ""):
        assert client.get(path, params={"name": "loss", "rank": wrong}).status_code == 422


def test_a_summary_of_ranks(client: TestClient, several: Writer) -> None:
    path = f"/api/runs/{several.run}/series"
    answer = told(client, path, models.Curves, name=["loss", "lr/0"], rank="all", summary=True)
    assert (answer["read"], answer["of"]) == (5, 5)
    loss = answer["summary"]["loss"]
    assert loss["steps"] == list(range(8))
    assert [loss[name][0] for name in ("low", "q1", "median", "q3", "high")] == [1.0, 1.001, 1.003, 1.004, 9.0]
    assert (loss["low_who"][0], loss["high_who"][0], loss["outliers"]) == (0, 2, [2])
    assert answer["summary"]["lr/0"]["outliers"] == []
    few = told(client, path, models.Curves, name="loss", rank="all", summary=True, most=2)
    assert (few["read"], few["of"]) == (2, 5)
    some = told(client, path, models.Curves, name="loss", rank="3-4", summary=True, start=2, stop=3)
    assert (some["of"], some["summary"]["loss"]["count"]) == (2, [2, 2])
    assert told(client, path, models.Curves, name="nothing", rank="all", summary=True)["summary"] == {}


def test_too_many_curves_are_refused_with_what_to_ask_for(
    client: TestClient, several: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seismograd.server.ranks.CURVES", 4)
    answer = client.get(f"/api/runs/{several.run}/series", params={"name": "loss", "rank": "all"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "too-many-ranks")
    assert "summary=true" in answer.json()["error"]["hint"]
