"""The page, what it is made of, and the documentation: nothing of it comes from anywhere else."""

from __future__ import annotations

import gzip
import json
import re
from importlib import resources
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from seismograd.server import files
from seismograd.server.files import names, plotly_address

STATIC = Path(str(resources.files("seismograd.server"))) / "static"


def test_the_page_names_plotly_by_its_hash(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    plain = "/static/plotly.min.js"
    assert all(
        answer.text[at.start() :].startswith(plotly_address()) for at in re.finditer(re.escape(plain), answer.text)
    )


@pytest.mark.parametrize("name", sorted(names()))
def test_files_are_served_as_they_are(client: TestClient, name: str) -> None:
    answer = client.get(f"/static/{name}")
    assert answer.content == (STATIC / name).read_bytes()
    assert answer.headers["cache-control"] == "no-cache"
    again = client.get(f"/static/{name}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_modules_have_the_type_that_browsers_want(client: TestClient) -> None:
    assert client.get("/static/docs.js").headers["content-type"] == "text/javascript; charset=utf-8"
    assert client.get("/static/docs.css").headers["content-type"] == "text/css; charset=utf-8"


@pytest.mark.parametrize(
    "name", ["..%2fapp.py", "%2e%2e/app.py", "..%5capp.py", "app.py", ".", "", "docs.js%00", "/etc/passwd", "DOCS.JS"]
)
def test_no_other_file_is(client: TestClient, name: str) -> None:
    answer = client.get(f"http://127.0.0.1/static/{name}")
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_plotly_comes_from_its_wheel_compressed_and_for_ever(client: TestClient) -> None:
    answer = client.get(plotly_address(), headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert answer.content == files.plotly().path.read_bytes()
    assert len(files.plotly().zipped()) < len(answer.content) / 2
    assert gzip.decompress(files.plotly().zipped()) == answer.content
    plain = client.get("/static/plotly.min.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.headers["cache-control"] == "no-cache"
    assert plain.content == answer.content
    assert client.get("/static/plotly.min.js?v=old").headers["cache-control"] == "no-cache"
    assert client.get(plotly_address(), headers={"If-None-Match": answer.headers["etag"]}).status_code == 304


@pytest.mark.parametrize("name", sorted(name for name in names() if name.endswith((".html", ".css", ".js"))))
def test_nothing_is_fetched_from_elsewhere(name: str) -> None:
    text = (STATIC / name).read_text(encoding="utf-8")
    for address in re.findall(r"https?://[^\s\"'`)<>]+", text):
        assert address.startswith("http://www.w3.org/"), address  # names of namespaces, not fetched


def test_the_documentation_is_drawn_from_the_schema(client: TestClient) -> None:
    page = client.get("/docs").text
    assert "/static/docs.js" in page
    assert "<script>" not in page
    spec = client.get("/openapi.json").json()
    assert spec["info"]["title"] == "Seismograd"
    assert client.get("/redoc").status_code == 404


def test_the_schema_is_complete(client: TestClient) -> None:
    spec = client.get("/openapi.json").json()
    wanted = {
        "/api": {"get"},
        "/api/runs": {"get"},
        "/api/runs/{run}": {"get", "delete"},
        "/api/runs/{run}/series": {"get"},
        "/api/runs/{run}/ranks": {"get"},
        "/api/runs/{run}/heat": {"get"},
        "/api/runs/{run}/findings": {"get"},
        "/api/runs/{run}/events": {"get"},
        "/api/runs/{run}/report": {"get"},
        "/api/runs/{run}/page": {"get"},
        "/api/runs/{run}/compare/{other}": {"get"},
        "/api/runs/{run}/live": {"get"},
        "/api/runs/{run}/requests": {"get", "post"},
        "/api/explain": {"get"},
        "/api/explain/{finding}": {"get"},
        "/metrics": {"get"},
        "/training-logs/debug/summary": {"get"},
        "/training-logs/debug/training/summary": {"get"},
        "/training-logs/debug/level/{level}": {"post"},
        "/training-logs/debug/clear": {"post"},
    }
    assert {path: set(methods) for path, methods in spec["paths"].items()} == wanted
    for path, methods in spec["paths"].items():
        for method, told in methods.items():
            assert told["summary"], (method, path)
            assert told["responses"]["422"]["content"]["application/json"]["schema"]["$ref"].endswith("/Problem")
            good = next(answer for status, answer in told["responses"].items() if status.startswith("2"))
            assert good.get("content") or method == "delete", (method, path)
    assert "HTTPValidationError" not in json.dumps(spec)
