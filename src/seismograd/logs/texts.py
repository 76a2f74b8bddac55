"""Files of text: read whole, or said to be none."""

from __future__ import annotations

from pathlib import Path

from seismograd.logs.log import LogError


def text_of(path: Path) -> str:
    """The text of a file; a byte that is no UTF-8 is no reason to give up, one that is zero is."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LogError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data[:65536]:
        raise LogError(f"{str(path)!r} is no text: give format='tensorboard' or 'mlflow' if it is one of these")
    return data.decode("utf-8-sig", errors="replace")
