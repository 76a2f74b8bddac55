"""Reads what W&B writes offline: a log of records, as LevelDB frames them."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 32768


def records(folder: Path) -> list[Record]:
    """Every record of the one offline run in the folder."""
    (path,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    for _ in range(400):  # its service writes for a moment after the run was finished
        found = [Record.FromString(data) for data in _framed(path.read_bytes())]
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            break
        time.sleep(0.05)
    return found


def rows(found: list[Record]) -> list[dict[str, Any]]:
    """The history, row by row."""
    return [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in found
        if record.WhichOneof("record_type") == "history"
    ]


def summary(found: list[Record]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for record in found:
        if record.WhichOneof("record_type") == "summary":
            for item in record.summary.update:
                result[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    return result


def _framed(data: bytes) -> Iterator[bytes]:
    at, whole = 7, b""  # behind the header of the file
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0:
            break
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last part
            yield whole
            whole = b""
