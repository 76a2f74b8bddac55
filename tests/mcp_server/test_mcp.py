"""`seismograd mcp`, asked by the SDK's own client over stdio, in a process of its own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client
from torch import nn

import seismograd as sg
from seismograd.mcp_server.bounds import KEYS, MOST, TEXT, bounded
from seismograd.records import Finding, Reading, Severity, Where
from seismograd.store import Recorder, open_store
from seismograd.store.schema import url_of

READS = {
    "get_verdict",
    "list_runs",
    "get_finding",
    "get_series",
    "explain_finding",
    "compare_runs",
    "search_findings",
}
Answer = TypeVar("Answer")


class Sick(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(self.layer(x) - 100.0)


def train(model: nn.Module, store: Path, name: str, steps: int = 30) -> str:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with sg.watch(model, optimizer, store=store, name=name, sinks=()) as watch:
        for _ in range(steps):
            optimizer.zero_grad()
            x = torch.randn(16, 4)
            nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    return watch.id


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sick run and a healthy one, as the watch records them."""
    home = tmp_path_factory.mktemp("mcp") / ".seismograd"
    train(Sick(), home, "sick", 5)
    torch.manual_seed(1)
    train(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)), home, "healthy")
    return home


@asynccontextmanager
async def session(store: Path | str, *more: str) -> AsyncIterator[ClientSession]:
    env = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "seismograd", "mcp", "--store", str(store), *more], env=env
    )
    async with stdio_client(command) as (read, write), ClientSession(read, write) as found:
        await found.initialize()
        yield found


def asked(store: Path | str, question: Callable[[ClientSession], Coroutine[Any, Any, Answer]], *more: str) -> Answer:
    async def whole() -> Answer:
        async with session(store, *more) as found:
            return await question(found)

    return asyncio.run(asyncio.wait_for(whole(), 120))


async def told(found: ClientSession, tool: str, **arguments: Any) -> tuple[dict[str, Any], str]:
    """The data and the text of a good answer, each within its bounds."""
    result = await found.call_tool(tool, arguments)
    text = "".join(part.text for part in result.content)
    assert not result.is_error, text
    assert len(text) <= TEXT + 200
    assert len(json.dumps(result.structured_content, ensure_ascii=False)) <= MOST + 100
    return result.structured_content, text


async def refused(found: ClientSession, tool: str, **arguments: Any) -> str:
    result = await found.call_tool(tool, arguments)
    assert result.is_error
    return "".join(part.text for part in result.content)


def state_of(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_client_finds_the_tools_the_resource_and_the_prompt(store: Path) -> None:
    async def question(found: ClientSession) -> None:
        tools = (await found.list_tools()).tools
        assert {tool.name for tool in tools} == READS
        for tool in tools:
            assert tool.description
            assert tool.output_schema
            assert tool.annotations.read_only_hint
            assert tool.input_schema["additionalProperties"] is False
            properties = tool.input_schema["properties"].values()
            assert all("description" in each or "$ref" in each or each.get("title") == "Limit" for each in properties)
        (template,) = (await found.list_resource_templates()).resource_templates
        assert template.uri_template == "seismograd://runs/{run}"
        report = json.loads((await found.read_resource("seismograd://runs/last")).contents[0].text)
        assert report["run"]["name"] == "healthy"
        with pytest.raises(MCPError, match="there is no run"):
            await found.read_resource("seismograd://runs/nothing-like-it")
        (prompt,) = (await found.list_prompts()).prompts
        text = (await found.get_prompt(prompt.name, {"run": "sick"})).messages[0].content.text
        assert "'sick'" in text
        assert "get_verdict" in text

    asked(store, question)


def test_a_sick_run_is_told_with_its_line(store: Path) -> None:
    async def question(found: ClientSession) -> None:
        data, text = await told(found, "get_verdict", run="sick")
        assert data["run"]["status"] == "critical"
        assert data["findings"][0]["number"] == 1
        assert data["first"] in text
        assert "critical" in text
        first = data["findings"][0]["id"]
        full, printed = await told(found, "get_finding", run="sick", finding="1")
        assert full["id"] == first
        assert full["where"]["code"].strip() == "return torch.sqrt(self.layer(x) - 100.0)"
        assert "torch.sqrt(self.layer(x) - 100.0)" in printed
        by_id, _ = await told(found, "get_finding", run="sick", finding=first)
        assert by_id["number"] == 1
        page, markdown = await told(found, "explain_finding", id=first)
        assert "Why it matters" in page["markdown"]
        assert markdown.startswith(f"# {first}")
        series, said = await told(found, "get_series", run="sick", names=["loss"])
        assert series["series"]["loss"]["last"][0] == "NaN"
        assert sum(series["series"]["loss"]["bad"]) == 5
        assert "never finite" in said
        found_it, _ = await told(found, "search_findings", text="torch.sqrt")
        assert {each["id"] for each in found_it["findings"]} >= {first}

    asked(store, question)


def test_a_healthy_run_is_told_as_one(store: Path) -> None:
    async def question(found: ClientSession) -> None:
        data, text = await told(found, "get_verdict")
        assert data["run"]["status"] == "healthy"
        assert data["run"]["name"] == "healthy"
        assert "looks healthy" in text
        assert data["first"] == ""
        listed, lines = await told(found, "list_runs")
        assert [run["name"] for run in listed["runs"]] == ["healthy", "sick"]
        assert listed["next_offset"] is None
        assert len(lines.splitlines()) == 2
        page, _ = await told(found, "list_runs", limit=1)
        assert page["next_offset"] == 1
        rest, _ = await told(found, "list_runs", limit=1, offset=1)
        assert [run["name"] for run in rest["runs"]] == ["sick"]
        only, _ = await told(found, "list_runs", status="critical")
        assert [run["name"] for run in only["runs"]] == ["sick"]
        series, _ = await told(found, "get_series")
        assert series["series"] == {}
        assert "loss" in series["available"]
        curve, _ = await told(found, "get_series", names=["loss", "grad/norm"], start=10, stop=19)
        assert curve["series"]["loss"]["last_step"] == list(range(10, 20))
        compared, sentence = await told(found, "compare_runs", run="healthy", other="sick")
        assert compared["verdict"] == "parted"
        assert compared["sentence"] in sentence
        same, _ = await told(found, "compare_runs", run="healthy", other="last")
        assert same["same"]
        every, listed = await told(found, "explain_finding")
        assert {"id": "loss-plateau", "title": sg_title("loss-plateau")} in every["catalogue"]
        assert [line.partition(":")[0] for line in listed.splitlines()] == [each["id"] for each in every["catalogue"]]

    asked(store, question)


def sg_title(finding: str) -> str:
    from seismograd.reports.pages import pages

    return pages()[finding].title


def test_what_is_wrong_is_said_with_what_to_do(store: Path) -> None:
    async def question(found: ClientSession) -> None:
        assert "did you mean 'healthy'" in await refused(found, "get_verdict", run="healty")
        assert "list_runs" in await refused(found, "get_verdict", run="nothing-like-it")
        assert "loss" in await refused(found, "get_series", run="healthy", names=["losss"])
        assert "nonfinite" in await refused(found, "get_finding", run="sick", finding="99")
        assert "loss-plateau" in await refused(found, "explain_finding", id="loss-plateu")
        assert "start 9 is after stop 3" in await refused(found, "get_series", names=["loss"], start=9, stop=3)
        assert "less than or equal to 50" in await refused(found, "list_runs", limit=10_000)
        assert "run" in await refused(found, "search_findings", run="sick"), "it would tell of all runs"
        assert "name" in await refused(found, "get_series", run="sick", name="loss")
        assert "has no rank 7" in await refused(found, "get_series", names=["loss"], rank=7)
        assert "ask_run" in await refused(found, "ask_run", run="last", kind="stop")
        await told(found, "get_verdict")  # it goes on

    asked(store, question)


def test_nothing_is_changed(store: Path) -> None:
    before = state_of(store)

    async def question(found: ClientSession) -> None:
        for tool in ("list_runs", "explain_finding", "search_findings"):
            await told(found, tool)
        for tool in ("get_verdict", "get_finding"):
            await told(found, tool, run="sick")
        await told(found, "get_series", run="sick", names=["loss"])
        await told(found, "compare_runs", run="sick", other="healthy")

    asked(store, question)
    assert state_of(store) == before


# -- a large run -------------------------------------------------------------------------------------------------------

LONG = "x" * 5000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("large")
    recorder = Recorder(
        url_of(home),
        "20260101-000000-big",
        LONG,
        state=lambda: {"status": "critical", "level": "basic", "steps": 20_000, "summary": {"last": {"loss": 1.0}}},
        about=lambda: {f"setting {at}": "word " * 1000 for at in range(40)},
    )
    names = {f"metric/{at}": float(at) for at in range(100)}
    for step in range(20_000):
        loss = float("nan") if step == 12_345 else 1e9 if step == 7_777 else 1.0
        recorder.write_reading(Reading(step, {"loss": loss, **(names if step == 0 else {})}))
        if step % 1000 == 999:
            recorder.flush()  # more at once than it can take is thinned
    for at in range(60):
        recorder.write_finding(
            Finding(
                "loss-spike",
                Severity.CRITICAL,
                at,
                LONG,
                where=Where(module=f"layer.{at}", code=LONG),
                evidence={f"key {number}": ["y" * 400] * 5 for number in range(40)} | {"series": at},
                recommendations=(LONG,) * 3,
            )
        )
    recorder.close(
        {
            "schema": 1,
            "version": "0",
            "run": {"id": "20260101-000000-big", "name": LONG, "status": "critical", "steps": 20_000},
            "findings": [],
            "summary": {},
            "events": [],
            "memory": [],
            "performance": {},
        }
    )
    return home


def test_a_large_run_is_told_in_little_room_and_no_spike_is_lost(large: Path) -> None:
    async def question(found: ClientSession) -> None:
        for tool in ("list_runs", "get_verdict", "get_finding", "search_findings", "explain_finding"):
            data, text = await told(found, tool)
            assert data["cut"] == (tool != "explain_finding")
            assert ("shortened" in text) == data["cut"]
        data, text = await told(found, "get_verdict")
        assert data["total_findings"] == 60
        assert "20. critical loss-spike, module layer.19" in text
        assert "40 more: get_finding takes their numbers, up to 60" in text
        curves, _ = await told(found, "get_series", names=["loss"], points=40)
        loss = curves["series"]["loss"]
        assert len(loss["first"]) <= 40
        assert max(value for value in loss["high"] if not isinstance(value, str)) == 1e9
        assert sum(loss["bad"]) == 1
        assert sum(loss["count"]) == 20_000
        most = [f"metric/{at}" for at in range(7)]
        _, text = await told(found, "get_series", names=["loss", *most], points=240)
        assert "30 points of each" in text
        compared, _ = await told(found, "compare_runs", run="last", other="last")
        assert compared["same"]
        report = (await found.read_resource("seismograd://runs/last")).contents[0].text
        assert len(report) <= 60_100  # what the documents say, and `cut`

    asked(large, question)


def test_data_is_cut_until_it_fits() -> None:
    deep: dict[str, Any] = {"list": [{f"key {at}": [LONG] * 30 for at in range(30)}] * 30}
    told, cut = bounded(deep)
    assert cut
    assert len(json.dumps(told, ensure_ascii=False)) <= MOST
    assert len(told["list"][0]) == KEYS
    assert bounded({"a": [1, float("nan")]}) == ({"a": [1, "NaN"]}, False)


# -- changes -----------------------------------------------------------------------------------------------------------


LIVE = """
import sys, time, torch, seismograd as sg
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
with sg.watch(model, optimizer, level="basic", store=sys.argv[1], name="live", sinks=()):
    for _ in range(6000):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)
"""


def test_with_the_flag_a_live_run_can_be_asked_and_an_old_one_deleted(store: Path, tmp_path: Path) -> None:
    home = tmp_path / "runs"
    old = train(nn.Linear(4, 1), home, "old", 3)
    training = subprocess.Popen([sys.executable, "-c", LIVE, str(home)], stderr=subprocess.DEVNULL)

    async def question(found: ClientSession) -> None:
        tools = {tool.name for tool in (await found.list_tools()).tools}
        assert tools == READS | {"ask_run", "delete_run"}
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            listed, _ = await told(found, "list_runs", state="live")
            if listed["runs"] and listed["runs"][0]["steps"] > 2:
                break
            await asyncio.sleep(0.2)
        level, _ = await told(found, "ask_run", run="live", kind="level", value="extreme")
        assert level["answer"]
        assert "'nonsense'" in await refused(found, "ask_run", run="live", kind="level", value="nonsense")
        assert "is live" in await refused(found, "delete_run", run=listed["runs"][0]["id"])
        stopped, _ = await told(found, "ask_run", run="live", kind="stop")
        assert stopped["taken"]
        assert "has ended" in await refused(found, "ask_run", run="old", kind="stop")
        assert "whole id" in await refused(found, "delete_run", run=old[:-2])
        await told(found, "delete_run", run=old)
        assert "there is no run" in await refused(found, "get_verdict", run=old)

    try:
        asked(home, question, "--allow-changes")
        training.wait(60)
    finally:
        training.kill()
        training.wait()
    with open_store(home) as found:
        assert found.run().level == "extreme"


# -- the process -------------------------------------------------------------------------------------------------------

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}},
}


def started(store: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "seismograd", "mcp", "--store", str(store)]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_stdout_has_only_the_protocol_and_the_end_of_stdin_ends_it(store: Path) -> None:
    process = started(store)
    out, err = process.communicate(json.dumps(HELLO) + "\n", timeout=60)
    assert process.returncode == 0, err
    answers = [json.loads(line) for line in out.splitlines()]
    assert [each["id"] for each in answers] == [1]
    assert answers[0]["result"]["serverInfo"]["name"] == "seismograd"
    assert not err


def test_an_interrupt_ends_it_at_once(store: Path) -> None:
    process = started(store)
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(HELLO) + "\n")
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert process.stderr
    assert "Traceback" not in process.stderr.read()
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def test_a_store_that_is_not_there_yet_can_be_asked(tmp_path: Path) -> None:
    async def question(found: ClientSession) -> None:
        data, text = await told(found, "list_runs")
        assert data["runs"] == []
        assert "no run" in text
        assert "nothing is recorded" in await refused(found, "get_verdict")

    asked(tmp_path / "later", question)
    assert not (tmp_path / "later").exists()
