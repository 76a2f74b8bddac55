"""`schemathesis` over the OpenAPI schema: whatever is sent, the answer is one of those that the schema tells of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, settings
from hypothesis.strategies import integers

from seismograd.server import create_app

from .conftest import ADDRESS, FREE, HOSTILE, Writer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it is made with what warns
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


OVER = [f"20260101-101500-{at}aaaaa" for at in range(len(HOSTILE))]
LIVE = "20260101-101500-live"
HEADERS = {"Host": "127.0.0.1", "X-Seismograd": "1"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """A server on a store full of hostile names: of runs, layers, scalars, events, findings."""
    store = tmp_path_factory.mktemp("hostile") / "runs"
    for run, name in zip(OVER, HOSTILE, strict=True):
        writer = Writer(store, run, name)
        writer.train(40, **{name: float("nan")})
        writer.log(name, name, "warning", **{name: name})
        writer.find(name, message=name, evidence={name: float("inf")}, recommendations=[name])
        writer.end()
    live = Writer(store, LIVE, "live")
    live.train(10)
    live.flush()
    yield create_app(store, limits=FREE)
    live.end()


schema = schemathesis.openapi.from_asgi("/openapi.json", create_app("nowhere"), headers=HEADERS)


@schema.parametrize()
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@schema.given(at=integers(0, 3 * len(OVER)))
def test_every_answer_is_one_that_the_schema_tells_of(case: schemathesis.Case, app: FastAPI, at: int) -> None:
    """Most cases are sent to runs that are there, the others to what the schema calls an id."""
    runs = OVER if case.path.endswith("/live") else [*OVER, LIVE, "last"]
    if "run" in case.path_parameters and case.method != "DELETE" and at < 2 * len(OVER):
        case.path_parameters["run"] = runs[at % len(runs)]
    case.call_and_validate(headers=HEADERS, checks=CHECKS, app=app)


def test_what_was_sent_has_changed_no_run(app: FastAPI) -> None:
    with TestClient(app, base_url=ADDRESS) as client:
        listed = client.get("/api/runs").json()
    assert {run["name"] for run in listed["runs"]} == {*HOSTILE, "live"}
