"""What every request has to pass: the right host, the token, its own site, its size and its rate.

A page on another site can make a browser send requests here. It cannot read the answers, but a POST would be done: so
`Origin` and `Sec-Fetch-Site` are looked at. It can also point a name of its own at 127.0.0.1 and then read everything
(DNS rebinding): so `Host` is looked at.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seismograd.server.login import Login
from seismograd.server.problems import RefusedError, clipped, failed, log
from seismograd.server.rates import Buckets

HOME_HOSTS = ("localhost", "127.0.0.1", "[::1]")
READING = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that change nothing."""

HEADERS = {
    "Seismograd-API": "1",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),  # plotly.js draws with inline styles
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What every answer carries, unless it says otherwise itself."""


@dataclass(frozen=True)
class Limits:
    """How much one client may ask for."""

    body: int = 64 * 1024
    query: int = 8 * 1024
    body_seconds: float = 10.0
    """How long a body may take to arrive."""
    changes: int = 30
    """So many POST and DELETE at once, then `changes_per_second`."""
    changes_per_second: float = 5.0
    guesses: int = 20
    """So many wrong tokens, then one in ten seconds."""
    streams: int = 100
    """So many live streams at once, of all clients."""


class Gate:
    """Middleware around the whole app. Whatever happens behind it, an answer comes out, with its headers."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        login: Login,
        hosts: Iterable[str] = HOME_HOSTS,
        read_only: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self.app, self.read_only, self.limits = app, read_only, limits or Limits()
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._login = login
        self._changes = Buckets(self.limits.changes, self.limits.changes_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        started = False

        async def dressed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            answer = self._check(scope)
            if answer is None:
                if scope["method"] not in READING:
                    receive = await self._with_body(scope, receive)
                await self.app(scope, receive, dressed)
                return
        except RefusedError as refusal:
            answer = refusal.answer()
        except Exception:
            log.exception("%s %s failed", scope["method"], clipped(scope["path"]))
            answer = failed().answer()
        if not started:
            await answer(scope, receive, dressed)

    # -- the checks ----------------------------------------------------------------------------------------------------

    def _check(self, scope: Scope) -> Response | None:
        """Raises `RefusedError`; a response is a way round the app."""
        headers = Headers(scope=scope)
        self._check_host(headers)
        if len(scope["query_string"]) > self.limits.query:
            raise RefusedError(
                414, "query-too-long", f"the query has {len(scope['query_string'])} bytes", self._at_most("query")
            )
        self._check_site(scope["method"], headers)
        answer = self._login.check(scope, headers, _client(scope))
        if answer is None and scope["method"] not in READING:
            self._check_change(scope, headers)
        return answer

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        host = host_of(given[0]) if len(given) == 1 else ""
        if host in self._hosts or (is_address(host) and not self._hosts.isdisjoint(("0.0.0.0", "[::]"))):
            return
        shown = ", ".join(map(repr, given)) or "none"
        raise RefusedError(
            400, "wrong-host", f"this server does not answer for host {shown}", "seismograd ui --allow-host NAME"
        )

    def _check_site(self, method: str, headers: Headers) -> None:
        """A browser says where a request comes from; what says nothing is no browser."""
        site, mode = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode")
        origin = headers.get("origin")
        foreign = site not in (None, "same-origin", "none") and (method not in READING or mode != "navigate")
        if foreign or (method not in READING and origin is not None and not same_place(origin, headers["host"])):
            raise RefusedError(
                403, "other-site", f"this comes from another site ({origin or site})", "use the page itself"
            )

    def _check_change(self, scope: Scope, headers: Headers) -> None:
        if not self._changes.take(_client(scope)):
            hint = f"at most {self.limits.changes_per_second:g} changes a second"
            raise RefusedError(429, "too-many-requests", "too many changes were asked for", hint, {"Retry-After": "1"})
        if self.read_only:
            raise RefusedError(403, "read-only", "this server only shows", "start seismograd ui without --read-only")
        given = headers.get("content-type")
        plain = given is None and not scope["path"].startswith("/api/")  # curl -X POST, as the guide has it
        json = given is not None and given.partition(";")[0].strip().lower() == "application/json"
        if not (json or plain or headers.get("x-seismograd") == "1"):
            hint = "send Content-Type: application/json, or X-Seismograd: 1"
            raise RefusedError(415, "not-json", f"the content type is {given or 'missing'}", hint)

    # -- the body ------------------------------------------------------------------------------------------------------

    async def _with_body(self, scope: Scope, receive: Receive) -> Receive:
        """The whole body, read within its limits, for the app to receive."""
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdigit() and int(length) > self.limits.body:
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return receive
                    body += message.get("body", b"")
                    if len(body) > self.limits.body:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            raise RefusedError(
                408, "too-slow", "the body did not arrive", "send it again", {"Connection": "close"}
            ) from None
        whole: Message | None = {"type": "http.request", "body": bytes(body), "more_body": False}

        async def again() -> Message:
            nonlocal whole
            message, whole = whole, None
            return await receive() if message is None else message

        return again

    def _too_large(self) -> RefusedError:
        return RefusedError(413, "too-large", "the body is too large", self._at_most("body"), {"Connection": "close"})

    def _at_most(self, limit: str) -> str:
        return f"at most {getattr(self.limits, limit)} bytes"


def host_of(header: str) -> str:
    """The host of a `Host` header, without its port: `localhost`, `127.0.0.1`, `[::1]`."""
    host, _, port = header.strip().lower().rpartition(":")
    if not host or not (port.isdigit() or port == "") or (host.startswith("[") and not host.endswith("]")):
        host = header.strip().lower()
    return host.rstrip(".")


def is_address(host: str) -> bool:
    """Whether it is an address: no name that could be pointed somewhere else."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def same_place(origin: str, host: str) -> bool:
    """Whether a page from `origin` came from this very server."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.strip().lower()


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""
