"""Arrays with a head as bytes: small, quick to write, and safe to read. There is no pickle.

A blob is `SG1`, a checksum, a head in JSON, which says where each array lies, and the arrays, each by itself, so that
one of them can be read without the others. Of the numbers of an array first the first bytes are stored, then the second
ones and so on: what neighbours have in common compresses, and what is noise is left as it is.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from seismograd.records import strict

_P = ParamSpec("_P")
_T = TypeVar("_T")

_MAGIC = b"SG1\n"
_BEGIN = len(_MAGIC) + 8
_LARGEST_HEAD = 1 << 26
_LARGEST_ARRAY = 1 << 28
"""Bytes: what claims to be larger, unpacked, was not written by us."""
_WORTH = 64
"""Bytes: what is smaller is not compressed."""
_TRIED = 512
"""Bytes by which it is seen whether a plane is noise."""

_DTYPES = {"f8": np.float64, "f4": np.float32, "i8": np.int64, "i4": np.int32, "u4": np.uint32, "i2": np.int16}
_NARROW = "n8"
"""Doubles that are stored as floats, without loss."""


class DamagedError(ValueError):
    """Bytes in the store that are not what was written there."""


def undamaged(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Reads bytes: whatever it stumbles over is a `DamagedError`."""

    @wraps(function)
    def reads(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except DamagedError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise DamagedError(f"a record of the store is damaged: {type(error).__name__}: {error}") from None

    return reads


def pack(head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, compress: bool = True) -> bytes:
    """A blob of `head`, which JSON can say, and the arrays by name."""
    index: dict[str, Any] = {}
    parts: list[bytes] = []
    at = 0
    for name, array in arrays.items():
        stored = np.ascontiguousarray(array)
        kind, stored = _narrowed(stored) if compress else (stored.dtype.str[1:], stored)
        planes = stored.reshape(-1).view(np.uint8).reshape(stored.size, stored.itemsize).T[::-1]
        count = _compressible(planes) if compress and stored.nbytes >= _WORTH else 0
        packed = zlib.compress(planes[:count].tobytes(), 1) if count else b""
        noise = planes[count:].tobytes()
        index[name] = [kind, list(array.shape), at, len(packed), count]
        parts += (packed, noise)
        at += len(packed) + len(noise)
    told = zlib.compress(json.dumps([head, index], separators=(",", ":"), default=strict).encode(), 1)
    body = b"".join([len(told).to_bytes(4, "little"), told, *parts])
    return b"".join([_MAGIC, zlib.crc32(body).to_bytes(4, "little"), body])


def _narrowed(array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    kind = array.dtype.str[1:]
    if kind == "f8" and array.size > 1:
        with np.errstate(all="ignore"):
            narrow = array.astype(np.float32)
        if np.array_equal(narrow, array, equal_nan=True):
            return _NARROW, narrow
    return kind, array


def _compressible(planes: NDArray[np.uint8]) -> int:
    """How many planes, of the most significant bytes first, are worth while: behind them is only noise."""
    count = len(planes)
    while count:
        tried = planes[count - 1, :_TRIED].tobytes()
        if len(zlib.compress(tried, 1)) < 0.95 * len(tried):
            return count
        count -= 1
    return 0


class Blob:
    """What `pack` made: `head` at once, an array when it is asked for. What is damaged raises `DamagedError`."""

    @undamaged
    def __init__(self, data: bytes) -> None:
        data = bytes(data)
        if not data.startswith(_MAGIC):
            raise DamagedError("a record of the store does not begin as records do: it is damaged")
        if zlib.crc32(memoryview(data)[8:]).to_bytes(4, "little") != data[4:8]:
            raise DamagedError("a record of the store is not what was written: its checksum differs")
        length = int.from_bytes(data[8:12], "little")
        head, index = json.loads(_inflated(data[_BEGIN : _BEGIN + length], _LARGEST_HEAD))
        self.head: dict[str, Any] = dict(head)
        self._index: dict[str, Any] = dict(index)
        self._body = memoryview(data)[_BEGIN + length :]

    def __contains__(self, name: object) -> bool:
        return name in self._index

    @property
    def names(self) -> list[str]:
        return list(self._index)

    @undamaged
    def array(self, name: str) -> NDArray[Any]:
        kind, shape, at, length, count = self._index[name]
        stored = np.dtype(np.float32 if kind == _NARROW else _DTYPES[kind])
        size = 1
        for side in shape:
            size *= int(side)
            if not 0 <= size * stored.itemsize <= _LARGEST_ARRAY or side < 0:
                raise DamagedError(
                    f"the array {name!r} of a record of the store claims to be of {shape}: it is damaged"
                )
        if not 0 <= count <= stored.itemsize or min(at, length) < 0:
            raise DamagedError(f"the array {name!r} of a record of the store is damaged")
        planes = _inflated(bytes(self._body[at : at + length]), count * size) if count else b""
        noise = bytes(self._body[at + length : at + length + (stored.itemsize - count) * size])
        raw = np.frombuffer(planes + noise, np.uint8)  # a ValueError below if there are too few
        array = raw.reshape(stored.itemsize, size)[::-1].T.copy().view(stored).reshape(shape)
        return array.astype(np.float64) if kind == _NARROW else array


def _inflated(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes, and nothing behind them: a small record cannot grow into a large one."""
    engine = zlib.decompressobj()
    try:
        raw = engine.decompress(data, limit + 1)
    except zlib.error as error:
        raise DamagedError(f"a record of the store cannot be unpacked: {error}") from None
    if len(raw) > limit or not engine.eof:
        raise DamagedError("a record of the store does not end where it should: it is damaged")
    return raw
