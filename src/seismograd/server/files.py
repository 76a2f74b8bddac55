"""The page and what it is made of: files of this package by their names, and plotly.js from plotly's wheel."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import threading
from functools import cache
from importlib import resources
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from seismograd.server.problems import RefusedError

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
PLOTLY = "plotly.min.js"
FOREVER = "public, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@router.get("/")
def index(request: Request) -> Response:
    text = _bytes("index.html").decode("utf-8")
    return _tagged(request, text.replace(f"/static/{PLOTLY}", plotly_address()).encode(), ".html")


@router.get("/docs")
def docs(request: Request) -> Response:
    return _tagged(request, _bytes("docs.html"), ".html")


@router.get(f"/static/{PLOTLY}")
async def chart_library(request: Request, v: str = "") -> Response:
    script = plotly()
    caching = FOREVER if v == script.tag else "no-cache"
    headers = {"ETag": f'"{script.tag}"', "Cache-Control": caching, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(await run_in_threadpool(script.path.read_bytes), headers=headers, media_type=TYPES[".js"])
    body = await run_in_threadpool(script.zipped)
    return Response(body, headers={**headers, "Content-Encoding": "gzip"}, media_type=TYPES[".js"])


@router.get("/static/{name}")
def static(request: Request, name: str) -> Response:
    return _tagged(request, _bytes(name), Path(name).suffix)


def names() -> frozenset[str]:
    """The files that are served: those in the package's folder, of the kinds a page is made of."""
    folder = resources.files("seismograd.server") / "static"
    return frozenset(each.name for each in folder.iterdir() if each.is_file() and Path(each.name).suffix in TYPES)


def _bytes(name: str) -> bytes:
    """The file of that name. What was asked for never becomes a path unless it is one of `names`."""
    if name not in names():
        raise RefusedError(404, "no-such-file", f"there is no file {name[:100]!r}", "the page is at /")
    return (resources.files("seismograd.server") / "static" / name).read_bytes()


def _tagged(request: Request, body: bytes, suffix: str) -> Response:
    """The file, or only the word that it is still the same."""
    headers = {"ETag": f'"{_tag(body)}"', "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=TYPES[suffix])


def _tag(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


class Plotly:
    """plotly.js as its wheel has it; importing plotly for it would take a while."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("plotly")
        assert spec is not None
        assert spec.submodule_search_locations
        self.path = Path(next(iter(spec.submodule_search_locations))) / "package_data" / PLOTLY
        self.tag = _tag(self.path.read_bytes())
        self._lock = threading.Lock()
        self._zipped: bytes | None = None

    def zipped(self) -> bytes:
        """Compressed, once."""
        with self._lock:
            if self._zipped is None:
                self._zipped = gzip.compress(self.path.read_bytes(), 6, mtime=0)
            return self._zipped


@cache
def plotly() -> Plotly:
    return Plotly()


def plotly_address() -> str:
    """Where plotly.js is served, with its hash: it may be kept for ever."""
    return f"/static/{PLOTLY}?v={plotly().tag}"
