"""`/metrics`, read as Prometheus reads it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from fastapi.testclient import TestClient

from seismograd.server.metrics import escaped, number

from .conftest import HOSTILE, Writer

_LINE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (NaN|[+-]Inf|[-+0-9.e]+)$')
_LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')


def read(client: TestClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every value by name and labels; each line has to be one that can be read."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.text.endswith("\n")
    found, told = {}, set()
    for line in answer.text.split("\n")[:-1]:
        if line.startswith("#"):
            kind, name = re.match(r"# (HELP|TYPE) (\S+) \S", line).groups()  # type: ignore[union-attr]
            assert (kind, name) not in told, "a family stands in one place"
            told.add((kind, name))
            continue
        match = _LINE.match(line)
        assert match is not None, line
        assert ("TYPE", match[1]) in told
        labels = frozenset(
            (key, re.sub(r"\\(.)", lambda each: {"n": "\n"}.get(each[1], each[1]), value))
            for key, value in _LABEL.findall(match[2] or "")
        )
        assert (match[1], labels) not in found
        found[match[1], labels] = float(match[3])
    return found


def values(client: TestClient, name: str) -> list[float]:
    return [value for (known, _), value in read(client).items() if known == f"seismograd_{name}"]


def test_of_an_empty_store(client: TestClient) -> None:
    assert values(client, "runs") == values(client, "live_runs") == [0]


def test_of_live_runs(client: TestClient, ended: Writer, live: Writer) -> None:
    live.train(1, loss=math.nan)
    live.find()
    live.flush()
    found = read(client)
    own = {("run", live.run), ("name", "second")}
    assert found["seismograd_runs", frozenset()] == 2
    assert found["seismograd_live_runs", frozenset()] == 1
    assert found["seismograd_findings", frozenset({("severity", "critical")})] == 2
    assert found["seismograd_run_steps_total", frozenset(own)] == 6
    assert found["seismograd_run_overhead_ratio", frozenset(own)] == 0.004
    assert found["seismograd_run_dropped_readings_total", frozenset(own)] == 0
    assert found["seismograd_run_findings", frozenset({*own, ("severity", "critical")})] == 1
    assert found["seismograd_run_gradient_norm", frozenset({*own, ("rank", "0"), ("series", "")})] == 5
    assert found["seismograd_run_learning_rate", frozenset({*own, ("rank", "0"), ("group", "0")})] == 0.1
    assert math.isnan(found["seismograd_run_loss", frozenset({*own, ("rank", "0"), ("series", "")})])
    assert not [labels for _, labels in found if ("run", ended.run) in labels]


def test_of_several_optimizers(client: TestClient, write: Callable[..., Writer]) -> None:
    writer = write("20260101-101500-aaaaaa")
    writer.train(2, **{"loss/0": 1.0, "loss/1": math.inf, "grad/norm/1": 3.0})
    writer.flush()
    assert sorted(values(client, "run_loss")) == [0.5, 1.0, math.inf]
    assert sorted(values(client, "run_gradient_norm")) == [1.0, 3.0]


def test_names_cannot_break_out_of_their_labels(client: TestClient, write: Callable[..., Writer]) -> None:
    for at, name in enumerate(('"} 1\nevil 1', "back\\slash", *HOSTILE)):
        writer = write(f"20260101-10150{at}-aaaaaa", name)
        writer.train(1)
        writer.flush()
        labels = frozenset({("run", writer.run), ("name", name)})
        assert read(client)["seismograd_run_steps_total", labels] == 1


@pytest.mark.parametrize(
    "name", ["a b{}\n/grad/norm", "0/grad/norm", "grad/norm_max", "grad/norm/", "loss/", "lr_scale"]
)
def test_a_scalar_of_the_users_own_is_no_metric(client: TestClient, live: Writer, name: str) -> None:
    before = read(client).keys()
    live.train(1, **{name: 1.0})
    live.flush()
    assert read(client).keys() == before


def test_words_and_numbers_of_the_format() -> None:
    assert escaped('a"b\\c\nd') == 'a\\"b\\\\c\\nd'
    assert [number(value) for value in (1, 0.5, math.nan, math.inf, -math.inf, "Infinity")] == [
        "1",
        "0.5",
        "NaN",
        "+Inf",
        "-Inf",
        "+Inf",
    ]
