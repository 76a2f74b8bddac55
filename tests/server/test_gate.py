"""What gets in and what does not: hosts, sites, tokens, sizes, rates; and the headers of what comes out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from seismograd.server import create_app
from seismograd.server.gate import HEADERS, Limits, host_of
from seismograd.server.rates import Buckets
from seismograd.server.serving import hosts_of
from seismograd.store import open_store

from .conftest import ADDRESS, Writer

TOKEN = "a-token-of-some-length"


def app_client(store: Path, base: str = ADDRESS, **more: Any) -> TestClient:
    return TestClient(create_app(store, **more), base_url=base, follow_redirects=False)


def code(answer: Any) -> tuple[int, str]:
    error = answer.json()["error"]
    assert error["status"] == answer.status_code
    assert set(error) == {"status", "code", "message", "hint"}
    assert all(isinstance(error[part], str) for part in ("code", "message", "hint"))
    return answer.status_code, error["code"]


# -- hosts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "localhost:8484", "127.0.0.1:1", "[::1]", "[::1]:8484", "LocalHost."])
def test_it_answers_for_this_machine(client: TestClient, host: str) -> None:
    assert client.get("/api", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8484",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "",
        "::1",
        "[::1",
    ],
)
def test_it_does_not_answer_for_a_name_that_was_pointed_at_it(client: TestClient, host: str) -> None:
    for path in ("/api/runs", "/", "/static/docs.js", "/metrics", "/openapi.json"):
        assert code(client.get(path, headers={"Host": host})) == (400, "wrong-host")


def test_two_host_headers_are_none(client: TestClient) -> None:
    answer = client.get("/api", headers=[("Host", "127.0.0.1"), ("Host", "evil.example")])
    assert code(answer) == (400, "wrong-host")


def test_other_names_can_be_allowed(store: Path) -> None:
    client = app_client(store, hosts=("gpu.lab.example",))
    assert client.get("/api", headers={"Host": "gpu.lab.example:8484"}).status_code == 200
    assert client.get("/api", headers={"Host": "127.0.0.1"}).status_code == 400


def test_one_that_listens_everywhere_has_every_address_but_not_every_name(store: Path) -> None:
    client = app_client(store, hosts=hosts_of("0.0.0.0", "0.0.0.0"))
    assert client.get("/api", headers={"Host": "10.1.2.3:8484"}).status_code == 200
    assert client.get("/api", headers={"Host": "[fe80::1]:8484"}).status_code == 200
    assert client.get("/api", headers={"Host": "evil.example"}).status_code == 400


def test_a_host_is_told_from_its_port() -> None:
    assert host_of("[::1]:80") == "[::1]"
    assert host_of("[::1]") == "[::1]"
    assert host_of("A.example:80") == "a.example"
    assert host_of("a.example:x") == "a.example:x"


# -- sites -------------------------------------------------------------------------------------------------------------

LEVEL = "/training-logs/debug/level/advanced"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_another_site_cannot_change_anything(client: TestClient, live: Writer, headers: dict[str, str]) -> None:
    assert code(client.post(LEVEL, headers=headers)) == (403, "other-site")
    assert code(client.delete(f"/api/runs/{live.run}", headers={**headers, "X-Seismograd": "1"})) == (403, "other-site")
    wish = {"kind": "stop"}
    assert code(client.post(f"/api/runs/{live.run}/requests", json=wish, headers=headers)) == (403, "other-site")
    live.flush()
    assert live.heard == []


def test_the_page_itself_can(client: TestClient, live: Writer) -> None:
    headers = {"Origin": ADDRESS, "Sec-Fetch-Site": "same-origin"}
    assert client.post(LEVEL, headers=headers).status_code == 200
    live.flush()
    assert live.heard == [("level", "advanced")]


def test_another_site_may_link_here_and_nothing_more(client: TestClient) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    assert code(client.get("/api/runs", headers={**link, "Sec-Fetch-Mode": "no-cors"})) == (403, "other-site")


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_is_no_request(client: TestClient, live: Writer, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    path = f"/api/runs/{live.run}/requests"
    assert code(client.post(path, content=b'{"kind": "stop"}', headers=headers)) == (415, "not-json")
    marked = {**headers, "X-Seismograd": "1", "Content-Type": "application/json; charset=utf-8"}
    assert client.post(path, content=b'{"kind": "stop"}', headers=marked).status_code == 202


def test_no_answer_is_for_other_origins(client: TestClient) -> None:
    answer = client.options(
        "/api/runs", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
    )
    assert code(answer)[0] == 405
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_a_websocket_is_closed_at_once(client: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/api"):
        pass


# -- tokens ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/api", "/api/runs", "/metrics", "/openapi.json", "/training-logs/debug/summary", "/nope"]
)
def test_with_a_token_nothing_is_told_without_it(store: Path, path: str) -> None:
    client = app_client(store, token=TOKEN)
    answer = client.get(path)
    assert code(answer) == (401, "no-token")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert code(client.get(path, headers={"Authorization": "Bearer wrong"})) == (401, "wrong-token")
    assert code(client.get(path, headers={"Authorization": f"Basic {TOKEN}"})) == (401, "no-token")
    assert code(client.get(path, headers={"Cookie": f"seismograd-80={TOKEN}"})) == (401, "no-token")
    assert code(client.post(path, headers={"X-Seismograd": "1"})) == (401, "no-token")
    assert client.get(path, headers={"Authorization": f"Bearer {TOKEN}"}).status_code in (200, 404)


def test_the_bare_page_may_be_fetched_to_ask_for_the_token(store: Path) -> None:
    client = app_client(store, token=TOKEN)
    assert client.get("/").status_code == client.get("/static/docs.js").status_code == 200


def test_a_token_in_the_address_is_traded_for_a_cookie(store: Path) -> None:
    client = app_client(store, "http://127.0.0.1:8484", token=TOKEN)
    answer = client.get(f"/api/runs?limit=7&token={TOKEN}&text=a%26b")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/api/runs?limit=7&text=a%26b"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("seismograd-8484=")
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip().lower() for part in cookie.split(";")}
    assert TOKEN not in cookie
    assert client.get(answer.headers["location"]).json()["limit"] == 7
    assert client.post("/training-logs/debug/clear").status_code == 200
    assert code(client.get(f"/api?token={TOKEN}x")) == (401, "wrong-token")


def test_a_token_may_have_any_letters(store: Path) -> None:
    client = app_client(store, token="Schlüssel zum Garten")
    assert client.get("/api", headers={b"Authorization": "Bearer Schlüssel zum Garten".encode()}).status_code == 200
    assert client.get("/api", params={"token": "Schlüssel zum Garten"}).status_code == 303
    assert code(client.get("/api", headers={b"Authorization": b"Bearer Schl\xffssel"})) == (401, "wrong-token")


def test_a_cookie_tells_nothing_of_the_token(store: Path) -> None:
    """Else guesses could be tried as cookies, past the limit on wrong tokens."""
    cookies = {app_client(store, token=TOKEN).get(f"/?token={TOKEN}").headers["set-cookie"] for _ in range(2)}
    assert len(cookies) == 2


def test_the_cookie_of_another_server_on_this_machine_is_not_ours(store: Path) -> None:
    app = create_app(store, token=TOKEN)
    one, other = (TestClient(app, base_url=f"http://127.0.0.1:{port}", follow_redirects=False) for port in (8484, 8485))
    cookie = one.get(f"/?token={TOKEN}").headers["set-cookie"].partition(";")[0]
    assert other.get("/api", headers={"Cookie": cookie}).status_code == 401
    assert other.get("/api", headers={"Cookie": f"{cookie.replace('8484', '8485')}; x=\x01"}).status_code == 200


def test_a_token_never_leads_elsewhere(store: Path) -> None:
    client = app_client(store, token=TOKEN)
    for path in ("//evil.example/", "/\\evil.example", "///evil.example"):
        location = client.get(f"{ADDRESS}{path}?token={TOKEN}").headers["location"]
        assert location.startswith("/evil.example")


def test_tokens_cannot_be_tried_for_ever(store: Path) -> None:
    client = app_client(store, token=TOKEN, limits=Limits(guesses=3))
    seen = [client.get("/api", headers={"Authorization": f"Bearer {at}"}).status_code for at in range(5)]
    assert seen == [401, 401, 401, 429, 429]
    assert code(client.get("/api", headers={"Authorization": f"Bearer {TOKEN}"})) == (429, "too-many-requests")


# -- sizes and rates ---------------------------------------------------------------------------------------------------


def test_a_body_has_a_limit_whether_it_says_its_length_or_not(client: TestClient, live: Writer) -> None:
    path, headers = f"/api/runs/{live.run}/requests", {"Content-Type": "application/json"}
    assert code(client.post(path, content=b" " * 70_000, headers=headers)) == (413, "too-large")
    pieces = (b" " * 1000 for _ in range(100))
    assert code(client.post(path, content=pieces, headers=headers)) == (413, "too-large")
    assert code(client.post(path, content=b"[" * 60_000, headers=headers))[0] in (400, 422)


def test_a_body_that_does_not_come_is_not_waited_for(store: Path) -> None:
    app = create_app(store, limits=Limits(body_seconds=0.05))
    sent: list[Any] = []

    async def go() -> None:
        async def receive() -> dict[str, Any]:
            await asyncio.sleep(60)
            raise AssertionError

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"10")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/runs/x/requests",
            "query_string": b"",
            "headers": headers,
        }
        await app({**scope, "client": ("127.0.0.1", 1), "http_version": "1.1", "scheme": "http"}, receive, send)

    asyncio.run(go())
    assert sent[0]["status"] == 408


def test_a_query_has_a_limit(client: TestClient) -> None:
    assert code(client.get("/api/runs?text=" + "a" * 9000)) == (414, "query-too-long")
    assert code(client.get("/api/runs?text=" + "a" * 201)) == (422, "not-valid")


def test_names_and_points_have_a_limit(client: TestClient, ended: Writer) -> None:
    path = f"/api/runs/{ended.run}/series"
    assert code(client.get(path, params={"name": ["loss"] * 51})) == (422, "not-valid")
    assert code(client.get(path, params={"name": "loss", "points": 5001})) == (422, "not-valid")
    assert code(client.get(path, params={"name": "x" * 501})) == (422, "not-valid")
    assert code(client.get(f"/api/runs/{ended.run}/heat", params={"samples": 1001})) == (422, "not-valid")
    assert client.get(path, params={"name": ["loss"] * 50, "points": 5000}).status_code == 200


def test_changes_have_a_rate(store: Path) -> None:
    client = app_client(store, limits=Limits(changes=3, changes_per_second=0.001))
    seen = [client.post("/training-logs/debug/clear") for _ in range(4)]
    assert [answer.status_code for answer in seen] == [200, 200, 200, 429]
    assert code(seen[-1]) == (429, "too-many-requests")
    assert seen[-1].headers["retry-after"] == "1"
    assert client.get("/api/runs").status_code == 200


def test_a_bucket_fills_again_and_forgets_who_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("seismograd.server.rates.time.monotonic", lambda: now)
    buckets = Buckets(2, per_second=1.0)
    assert [buckets.take("a") for _ in range(3)] == [True, True, False]
    assert buckets.take("b")
    now = 1.0
    assert [buckets.take("a"), buckets.take("a")] == [True, False]
    for client in range(5000):
        buckets.take(str(client))
    assert len(buckets._levels) <= Buckets.clients


def test_one_that_only_shows_refuses_every_change(store: Path, live: Writer, ended: Writer) -> None:
    client = app_client(store, read_only=True)
    assert client.get("/api").json()["read_only"] is True
    assert code(client.post(LEVEL)) == (403, "read-only")
    assert code(client.post("/training-logs/debug/clear")) == (403, "read-only")
    assert code(client.post(f"/api/runs/{live.run}/requests", json={"kind": "stop"})) == (403, "read-only")
    assert code(client.delete(f"/api/runs/{ended.run}", headers={"X-Seismograd": "1"})) == (403, "read-only")
    live.flush()
    assert live.heard == []
    assert len(open_store(store).runs()) == 2


# -- what comes out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/docs", "/api", "/nope", "/api/runs?limit=x", "/static/docs.js", "/metrics"])
def test_every_answer_has_the_headers(client: TestClient, path: str) -> None:
    answer = client.get(path)
    for name, value in HEADERS.items():
        assert name.lower() == "cache-control" or answer.headers[name] == value
    assert "cache-control" in answer.headers
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy


def test_an_error_of_ours_says_nothing_of_the_inside(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("secret of the inside")

    monkeypatch.setattr("seismograd.server.shelf.Shelf.count", broken)
    answer = client.get("/api/runs")
    assert code(answer) == (500, "server-error")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "secret of the inside" in caplog.text
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("POST", "/api", 405),
        ("PUT", "/api/runs", 405),
        ("GET", "/api/runs/.x", 422),
        ("BREW", "/", 405),
    ],
)
def test_every_error_has_one_shape(client: TestClient, method: str, path: str, status: int) -> None:
    assert code(client.request(method, path, headers={"X-Seismograd": "1"}))[0] == status


def test_a_slow_store_holds_up_nobody_else(client: TestClient, monkeypatch: pytest.MonkeyPatch, live: Writer) -> None:
    import threading

    from seismograd.server.shelf import Shelf

    waits, goes_on = threading.Event(), threading.Event()
    count: Callable[[Shelf], int] = Shelf.count

    def slow(shelf: Shelf) -> int:
        waits.set()
        assert goes_on.wait(30)
        return count(shelf)

    monkeypatch.setattr(Shelf, "count", slow)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(client.get("/api/runs").status_code))
    thread.start()
    assert waits.wait(30)
    assert client.get(f"/api/runs/{live.run}").status_code == 200  # while the other still waits
    assert answers == []
    goes_on.set()
    thread.join(30)
    assert answers == [200]
