"""The token: in a header, in a cookie, or once in the address, which is traded for the cookie."""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from seismograd.server.problems import RefusedError
from seismograd.server.rates import Buckets

_OPEN = ("/static/",)
_OPEN_PAGES = frozenset(("/", "/docs"))
"""The page itself holds nothing of any run: it may be fetched, to ask for the token."""


class Login:
    """Lets through what carries the token; without one, everything."""

    def __init__(self, token: str | None, guesses: int = 20) -> None:
        self._token = None if token is None else token.encode()
        self._pass = secrets.token_hex(32)
        """The cookie. Made from the token it would be another way to guess that, as often as one likes."""
        self._guesses = Buckets(guesses, 0.1)

    def check(self, scope: Scope, headers: Headers, client: str) -> Response | None:
        """Raises `RefusedError`, or answers with the cookie and the address without the token."""
        if self._token is None:
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = next((value for key, value in query if key == "token"), None)
        if given is not None and scope["method"] == "GET":
            self._compare(client, given.encode("utf-8", "surrogateescape"))
            return self._entered(scope, headers, [pair for pair in query if pair[0] != "token"])
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            self._compare(client, bearer.strip().encode("latin-1"))  # as it was sent
            return None
        cookie = cookie_parser(headers.get("cookie", "")).get(_cookie(headers), "")
        if hmac.compare_digest(cookie.encode("utf-8", "replace"), self._pass.encode()):
            return None
        if scope["method"] == "GET" and (scope["path"] in _OPEN_PAGES or scope["path"].startswith(_OPEN)):
            return None
        hint = "send it as 'Authorization: Bearer TOKEN', or open the address that seismograd ui printed"
        raise RefusedError(401, "no-token", "this server wants its token", hint, {"WWW-Authenticate": "Bearer"})

    def _compare(self, client: str, given: bytes) -> None:
        assert self._token is not None
        if not self._guesses.left(client):
            raise RefusedError(429, "too-many-requests", "too many wrong tokens", "wait a while", {"Retry-After": "10"})
        if not hmac.compare_digest(given, self._token):
            self._guesses.take(client)
            hint = "use the one that seismograd ui printed when it started"
            raise RefusedError(401, "wrong-token", "the token is wrong", hint, {"WWW-Authenticate": "Bearer"})

    def _entered(self, scope: Scope, headers: Headers, rest: list[tuple[str, str]]) -> Response:
        path = "/" + quote(scope["path"].lstrip("/\\"))  # //elsewhere would be another host
        answer = RedirectResponse(path + (f"?{urlencode(rest)}" if rest else ""), 303)
        secure = scope.get("scheme") == "https"
        answer.set_cookie(_cookie(headers), self._pass, httponly=True, samesite="strict", secure=secure, path="/")
        return answer


def _cookie(headers: Headers) -> str:
    """Its name; cookies are shared by all ports of a host, so that it has to hold the port."""
    port = headers.get("host", "").rpartition(":")[2]
    return f"seismograd-{port if port.isdigit() else 80}"
