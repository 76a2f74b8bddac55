"""`seismograd ui` as a user meets it: ports, addresses, tokens, Ctrl-C."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from seismograd.cli import app
from seismograd.server import serving
from seismograd.server.serving import PORT, ServeError, bind, has_screen, hosts_of, is_home

from .conftest import Served, Writer

Serve = Callable[..., Served]


def ui(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["ui", "--no-open", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stderr


@pytest.fixture
def refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not to get as far as to serve."""

    def run(*_: object, **__: object) -> None:
        raise AssertionError("it serves")

    monkeypatch.setattr(serving.Server, "run", run)


def port_of(address: str) -> int:
    found = re.search(r":(\d+)/", address)
    assert found is not None
    return int(found[1])


def test_it_serves_until_ctrl_c_and_ends_with_0(serve: Serve, live: Writer, store: Path) -> None:
    served = serve("--port", "0", "--store", str(store))
    address = served.started()
    assert address.startswith("http://127.0.0.1:")
    with httpx2.Client(base_url=address, timeout=30) as client:
        assert client.get("/api/runs").json()["total"] == 1
        assert "server" not in client.get("/").headers
        with client.stream("GET", f"/api/runs/{live.run}/live", params={"name": "loss"}) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: hello"
            served.interrupt()
            list(lines)  # the stream ends, whole
    code, out, err = served.ended()
    assert (code, err) == (0, "")
    assert f"{store.name}/seismograd.db" in out
    assert "token" not in out


def test_it_serves_the_store_that_the_environment_names(serve: Serve, live: Writer, store: Path) -> None:
    served = serve("--port", "0", SEISMOGRAD_STORE=str(store))
    assert httpx2.get(f"{served.started()}api/runs", timeout=30).json()["runs"][0]["id"] == live.run
    served.interrupt()
    assert served.ended()[0] == 0


def test_sigterm_ends_it_as_it_ends_others(serve: Serve) -> None:
    served = serve("--port", "0")
    served.started()
    served.interrupt(signal.SIGTERM)
    code, _, err = served.ended()
    assert (code, err) == (-signal.SIGTERM, "")


def test_it_starts_without_torch_and_makes_no_store(home: Path) -> None:
    program = (
        "import sys\nfrom seismograd.server import create_app, serve\n"
        "app = create_app()\nsys.exit('torch' in sys.modules or 'plotly' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 0
    assert not home.exists()


@pytest.mark.usefixtures("refuses")
def test_a_port_that_is_taken_and_was_asked_for() -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        code, err = ui("--port", str(port))
    assert code == 2
    found = re.fullmatch(rf"seismograd: port {port} is taken: (\d+) is free, use --port (\d+)\n", err)
    assert found is not None, err
    assert port < int(found[1]) == int(found[2])


def test_the_usual_port_gives_way_to_the_next(serve: Serve) -> None:
    try:
        taken = bind("127.0.0.1", PORT)
    except ServeError:
        taken = None  # somebody else's: as good
    try:
        served = serve()
        number = port_of(served.started())
        assert PORT < number < PORT + serving.TRIES
        assert f"port {PORT} is taken, using {number}" in "".join(served.said)
        served.interrupt()
        assert served.ended()[0] == 0
    finally:
        if taken is not None:
            taken.close()


def test_a_host_beyond_this_machine_has_a_token_made_and_printed_once(serve: Serve, live: Writer, store: Path) -> None:
    served = serve("--host", "0.0.0.0", "--port", "0", "--store", str(store))
    address = served.started()
    token = address.partition("?token=")[2]
    assert len(token) >= 32
    base = f"http://127.0.0.1:{port_of(address)}"
    with httpx2.Client(base_url=base, timeout=30) as client:
        assert client.get("/api/runs").status_code == 401
        assert client.get("/api/runs", headers={"Host": "evil.example"}).status_code == 400
        assert client.get("/api/runs", headers={"Authorization": f"Bearer {token}"}).json()["total"] == 1
        entered = client.get(f"/?token={token}")
        assert entered.status_code == 303
        assert entered.headers["location"] == "/"
        assert client.get("/api/runs").json()["total"] == 1, "by the cookie"
        assert client.post("/training-logs/debug/level/basic").status_code == 200
    served.interrupt()
    code, out, err = served.ended()
    assert (code, out.count(token), err.count(token)) == (0, 1, 0)


def test_a_token_of_ones_own_from_the_environment(serve: Serve) -> None:
    served = serve("--port", "0", SEISMOGRAD_TOKEN="a-token-of-mine\n")  # as a file has it
    address = served.started()
    assert address.endswith("/?token=a-token-of-mine")
    base = address.partition("?")[0]
    assert httpx2.get(f"{base}api", timeout=30).status_code == 401
    assert httpx2.get(f"{base}api", headers={"Authorization": "Bearer a-token-of-mine"}, timeout=30).status_code == 200
    served.interrupt()
    assert served.ended()[0] == 0


@pytest.mark.usefixtures("refuses")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--token", "short"), "the token has 5 characters"),
        (("--token", ""), "the token has 0 characters"),
        (("--host", "no-such-host.invalid"), "'no-such-host.invalid' is not known here"),
        (("--host", "192.0.2.1"), "'192.0.2.1' is no address of this machine"),
        (("--store", ""), "--store is empty"),
        (("--store", "mysql://x/y"), "a store cannot be kept in 'mysql'"),
        (("--port", "65536"), "65535"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(arguments: tuple[str, ...], told: str) -> None:
    code, err = ui(*arguments)
    assert code == 2
    assert told in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", [("run", "train.py"), ("runs",), ("show", "last")])
def test_no_command_takes_an_empty_store(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [command[0], "--store", "", *command[1:]])
    assert (result.exit_code, result.stderr.partition(":")[2].partition(":")[0]) == (2, " --store is empty")


@pytest.mark.usefixtures("refuses")
def test_a_store_that_cannot_be_read_is_said_before_anything_is_served(tmp_path: Path) -> None:
    (tmp_path / "seismograd.db").write_bytes(b"no database at all " * 100)
    code, err = ui("--store", str(tmp_path))
    assert code == 2
    assert "seismograd.db" in err


def test_small_answers_do_not_wait_for_more() -> None:
    """asyncio turns Nagle's delay off, which costs 40 ms an answer, only on sockets that name their protocol."""
    with bind("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_which_addresses_are_this_machines_own() -> None:
    assert is_home("127.0.0.1")
    assert is_home("127.3.2.1")
    assert is_home("::1")
    assert not is_home("0.0.0.0")
    assert not is_home("10.0.0.1")
    assert not is_home("fe80::1%eth0")


def test_names_under_which_it_may_be_asked_for() -> None:
    assert hosts_of("localhost", "127.0.0.1") == ("localhost", "127.0.0.1")
    assert hosts_of("::1", "::1") == ("[::1]", "[::1]")
    assert {"0.0.0.0", socket.gethostname()} <= set(hosts_of("0.0.0.0", "0.0.0.0"))


def test_a_browser_is_opened_only_where_there_is_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSH_CONNECTION", "CI", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert not has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert has_screen()
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    assert not has_screen()
    monkeypatch.delenv("SSH_CONNECTION")
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert not has_screen()


def test_the_browser_is_shown_the_address_when_it_answers(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    shown: list[tuple[str, int]] = []
    servers: list[serving.Server] = []
    started = serving.Server.startup

    async def noted(server: serving.Server, sockets: list[socket.socket] | None = None) -> None:
        servers.append(server)
        await started(server, sockets)

    def opened(link: str) -> None:
        shown.append((link, httpx2.get(f"{link}api", timeout=30).status_code))
        servers[0].should_exit = True

    monkeypatch.setattr(serving.Server, "startup", noted)
    monkeypatch.setattr("webbrowser.open", opened)
    said: list[str] = []
    thread = threading.Thread(target=lambda: serving.serve(port=0, open_browser=True, say=said.append))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert [status for _, status in shown] == [200]
    assert shown[0][0] in said[0]
