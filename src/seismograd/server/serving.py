"""Runs the server: a port, an address for people, and an end at once on Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

import uvicorn

from seismograd.server.app import create_app
from seismograd.server.gate import HOME_HOSTS
from seismograd.server.live import Live

PORT = 8484
TRIES = 20
"""Ports that are tried from the first one on, if it was not asked for by hand."""
SHORTEST = 8
"""Characters of a token."""


class ServeError(ValueError):
    """There is no way to serve there; the message says why and what to do."""


def serve(
    store: str | os.PathLike[str] | None = None,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    allow_hosts: Iterable[str] = (),
    read_only: bool = False,
    open_browser: bool = False,
    say: Callable[[str], Any] = print,
) -> None:
    """Serves the dashboard until Ctrl-C. Beyond this machine it wants a token, which is made if none is given."""
    token = None if token is None else token.strip()  # a file's last line has an end
    if token is not None and len(token) < SHORTEST:
        raise ServeError(f"the token has {len(token)} characters: give {SHORTEST} or more, or none to have one made")
    bound = bind(host, port)
    with (
        contextlib.closing(bound),
        contextlib.suppress(KeyboardInterrupt),
    ):  # uvicorn raises it again when all is closed
        address, number = bound.getsockname()[:2]
        if token is None and not is_home(address):
            token = secrets.token_urlsafe(24)
        app = create_app(
            store, token=token, hosts=(*HOME_HOSTS, *hosts_of(host, address), *allow_hosts), read_only=read_only
        )
        if not app.state.shelf.is_empty:
            app.state.shelf.open()  # what is in the way is said before anybody looks
        link = f"http://{_reachable(host, address)}:{number}/"
        if port is None and number != PORT:
            say(f"seismograd: port {PORT} is taken, using {number}")
        with_token = link if token is None else f"{link}?token={quote(token, safe='')}"
        say(f"seismograd: the dashboard of {app.state.shelf.shown} is at {with_token}\nseismograd: Ctrl-C ends it")
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2
        )
        server = Server(config, app.state.live, (lambda: _show(with_token)) if open_browser else None)
        server.run(sockets=[bound])


class Server(uvicorn.Server):
    """Tells the live streams that it is about to end: it would wait for them."""

    def __init__(self, config: uvicorn.Config, live: Live, started: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._live, self._on_start = live, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_start is not None:
            threading.Thread(target=self._on_start, name="seismograd-browser", daemon=True).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._live.end()
        await super().shutdown(sockets)


def bind(host: str, port: int | None) -> socket.socket:
    """A socket that listens there; `None` is the usual port, or the next one that is free."""
    family, address = _resolved(host)
    wanted = [port] if port is not None else range(PORT, PORT + TRIES)
    taken: OSError | None = None
    for number in wanted:
        try:
            return _listening(family, address, number)
        except OSError as error:
            taken = error
            if error.errno != errno.EADDRINUSE:
                break
    assert taken is not None
    raise ServeError(_why(host, wanted[0], family, address, taken)) from taken


def _listening(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or asyncio leaves Nagle's delay on
    try:
        if os.name != "nt":  # there it would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        bound.listen(128)
    except BaseException:
        bound.close()
        raise
    return bound


def _resolved(host: str) -> tuple[socket.AddressFamily, str]:
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ServeError(f"--host {host!r} is not known here ({error}): use 127.0.0.1, or 0.0.0.0 for all") from None
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return found[0][0], str(found[0][4][0])


def _why(host: str, port: int, family: socket.AddressFamily, address: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        free = _next_free(family, address, port)
        return f"port {port} is taken" + (f": {free} is free, use --port {free}" if free else ": choose another --port")
    if error.errno == errno.EACCES:
        return f"port {port} is not allowed for this user: use --port with 1024 or more"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host!r} is no address of this machine: use 127.0.0.1, or 0.0.0.0 for all"
    return f"{host}:{port} cannot be served: {error.strerror or error}"


def _next_free(family: socket.AddressFamily, address: str, port: int) -> int | None:
    for number in range(port + 1, min(port + TRIES, 65536)):
        with contextlib.suppress(OSError):
            _listening(family, address, number).close()
            return number
    return None


def is_home(address: str) -> bool:
    """Whether only this machine reaches it."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def hosts_of(host: str, address: str) -> tuple[str, ...]:
    """The names under which it may be asked for; one that listens everywhere has all addresses and the machine's."""
    own = (_bracketed(host), _bracketed(address))
    if not ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        return own
    return (*own, "0.0.0.0", socket.gethostname(), socket.getfqdn())


def _reachable(host: str, address: str) -> str:
    if ipaddress.ip_address(address.partition("%")[0]).is_unspecified:
        return socket.gethostname()
    return _bracketed(host)


def _bracketed(host: str) -> str:
    return f"[{host.strip('[]')}]" if ":" in host else host


def _show(link: str) -> None:
    with contextlib.suppress(Exception):
        webbrowser.open(link)


def has_screen() -> bool:
    """Whether somebody sits in front of this machine, as far as can be told."""
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION") or os.environ.get("CI"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
