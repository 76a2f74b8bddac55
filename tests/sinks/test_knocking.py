"""Whether a server is there: asked at once, but not where a proxy stands between."""

from __future__ import annotations

import socket

import pytest

from seismograd.sinks.knocking import knock


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://user:geheim@127.0.0.1:{free.getsockname()[1]}/v1/metrics"


def test_nobody_is_there(nobody: str) -> None:
    with pytest.raises(ConnectionError, match="no server answers at ") as said:
        knock(nobody)
    assert "geheim" not in str(said.value)


def test_what_is_behind_a_proxy_or_no_server_at_all_is_not_asked(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    knock("sqlite:///mlflow.db")
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    knock(nobody)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(ConnectionError):
        knock(nobody)
