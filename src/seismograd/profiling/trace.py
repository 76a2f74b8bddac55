"""Writes a trace whole or not at all, as JSON that viewers read."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(rb'("cat": "[^"\n]*",\s+"name": ")(.*?)(",\s+"pid": )', re.DOTALL)


def check(path: Path) -> None:
    """Makes the trace's folder; an `OSError` says at once what will be in the way."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if not os.access(path.parent, os.W_OK):
            raise PermissionError(errno.EACCES, "its folder cannot be written")
    except OSError as error:
        raise OSError(
            error.errno or errno.EIO,
            f"the trace cannot be written to {str(path)!r} ({error.strerror or error}): give a path to a file in a"
            " folder that can be written",
        ) from error


def write(path: Path, export: Callable[[str], object]) -> None:
    """Has `export` write to a draft beside `path`, mends it where it has to, and puts it in its place."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp.json")
    try:
        export(str(draft))
        data = _mended(draft.read_bytes())
        draft.write_bytes(gzip.compress(data, 6) if path.name.endswith(".gz") else data)
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink()


def _mended(data: bytes) -> bytes:
    """The same trace with names escaped: torch writes them as they are, and one with a quote breaks the whole."""
    return _NAME.sub(_escaped, data)


def _escaped(match: re.Match[bytes]) -> bytes:
    first, name, last = match.groups()
    if b'"' not in name and b"\\" not in name and b"\n" not in name:
        return match.group()
    try:
        json.loads(b'"' + name + b'"')
    except ValueError:
        name = json.dumps(name.decode("utf-8", "replace"))[1:-1].encode()
    return first + name + last
