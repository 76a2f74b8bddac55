"""An address that findings are posted to, as JSON that chat rooms and plain receivers understand."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from seismograd import __version__
from seismograd.masking import host_only
from seismograd.records import Finding, strict
from seismograd.reports.words import describe_place

LONGEST_WAIT = 30.0
"""Seconds that a receiver may have us wait before the next attempt."""
LONGEST_TEXT = 1900
"""Characters: some rooms take 2000."""


class DeliveryError(Exception):
    """The receiver did not take it. `wait` is when to try again, in seconds; `None` if that would not help."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.wait = wait


class Webhook:
    """Posts findings to one address, whose path and login are nobody's to know: it shows itself as its host."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
            raise ValueError(f"notify cannot post to {host_only(url)!r}: give an address that begins with https://")
        self._shown = host_only(url)
        self._login = parts.netloc.rpartition("@")[0]
        self._url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._is_discord = parts.hostname.endswith(("discord.com", "discordapp.com"))

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"<Webhook {self._shown}>"

    def deliver(self, finding: Finding, run: Mapping[str, Any], timeout: float) -> None:
        """Posts it; a `DeliveryError` says why that failed."""
        body = message(finding, run)
        if self._is_discord:
            body |= {"content": body["text"], "allowed_mentions": {"parse": []}}
        headers = {"Content-Type": "application/json", "User-Agent": f"seismograd/{__version__}"}
        headers["Idempotency-Key"] = body["id"]
        if self._login:
            headers["Authorization"] = "Basic " + base64.b64encode(unquote(self._login).encode()).decode()
        request = Request(self._url, json.dumps(body, allow_nan=False).encode(), headers, method="POST")
        try:
            with _opener().open(request, timeout=timeout):
                return
        except HTTPError as error:
            error.close()
            again = error.code in (408, 425, 429) or error.code >= 500
            raise DeliveryError(f"HTTP {error.code}", _wait(error) if again else None) from None
        except URLError as error:
            again = not isinstance(error.reason, ssl.SSLCertVerificationError)
            raise DeliveryError(_reason(error.reason), 0.0 if again else None) from None
        except (OSError, http.client.HTTPException) as error:
            raise DeliveryError(_reason(error), 0.0) from None


class _NoRedirect(HTTPRedirectHandler):
    """What is to be posted here is not to be asked for there."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener() -> OpenerDirector:
    return build_opener(_NoRedirect)


def message(finding: Finding, run: Mapping[str, Any]) -> dict[str, Any]:
    """The finding as a receiver gets it: `text` for people, the rest for programs."""
    series = finding.evidence.get("series")
    parts = [run.get("id", ""), finding.id, finding.rank, *([] if series is None else [series])]
    return {
        "text": _calm(text(finding, run)),
        "id": "/".join(map(str, parts)),
        "source": "seismograd",
        "run": strict(dict(run)),
        "finding": strict(finding.to_dict()),
    }


def text(finding: Finding, run: Mapping[str, Any]) -> str:
    """The finding in a few lines: what, in which run, where, what to try."""
    name = " ".join(filter(None, (run.get("name"), f"({run['id']})" if run.get("id") else "")))
    lines = [f"{finding.severity.value.upper()} {finding.id} at step {finding.step}" + (f" of {name}" if name else "")]
    lines.append(finding.message)
    if (place := describe_place(finding)) and place not in finding.message:
        lines.append(place + (f": {finding.where.code.strip()}" if finding.where.code else ""))
    if because := finding.evidence.get("because"):
        lines.append(f"It follows from {because}.")
    elif finding.recommendations:
        lines.append(f"Try: {finding.recommendations[0]}")
    whole = "\n".join(lines)
    return whole if len(whole) <= LONGEST_TEXT else whole[: LONGEST_TEXT - 3] + "..."


def _calm(words: str) -> str:
    """No name of a layer calls everybody in a chat room: `<!channel>` and `@all` are only words here."""
    return (
        words.replace("<", "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}")
        .replace(">", "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}")
        .replace("@", "@\N{ZERO WIDTH SPACE}")
    )


def _wait(error: HTTPError) -> float:
    try:
        return min(max(float(error.headers.get("Retry-After") or 0.0), 0.0), LONGEST_WAIT)
    except (ValueError, AttributeError):
        return 0.0


def _reason(error: Any) -> str:
    """What went wrong, without the address."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return type(error).__name__ if isinstance(error, Exception) else str(error)
