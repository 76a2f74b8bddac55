"""What a loader is at while the loop waits for it: the stage and the user's line, from samples of a thread's stack."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from threading import Event, Thread
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

from seismograd.places import Spot, is_users, parsed_expression, spot_of

READING, TRANSFORM, SAMPLE, COLLATE, COPY, SAMPLER, WORKERS = (
    *("reading", "transform", "sample", "collate"),
    *("copy", "sampler", "workers"),
)
"""What a wait is for. `sample`: somewhere in `__getitem__`; `workers`: other processes, which cannot be seen."""

_FETCH = str(PurePath("torch", "utils", "data", "_utils", "fetch.py"))
_LOADER = str(PurePath("torch", "utils", "data", "dataloader.py"))
_PASSED_ON = ("torch/multiprocessing/reductions.py", "torch/utils/data/_utils/pin_memory.py", "multiprocessing/heap.py")
_RECEIVES = frozenset({"recv", "recv_bytes", "_recv", "_recv_bytes", "loads"})

_LIBRARIES = (
    (READING, re.compile(
        r"/(h5py|lmdb|zarr|soundfile|imageio|tifffile|pyarrow|sqlite3|json|urllib\d?|http|requests|fsspec|s3fs|boto3"
        r"|botocore|nibabel|pydicom|rasterio|decord|av|netCDF4|webdataset)/"
        r"|/(soundfile|gzip|zipfile|tarfile|lzma|bz2|pickle|csv|pathlib|codecs|socket|ssl|tifffile)\.py$"
        r"|/zipfile/|/pathlib/|numpy/lib/_?(npyio|format)|/pandas/io/|/torch/serialization\.py|/torchvision/io/"
        r"|/PIL/(ImageFile|\w+ImagePlugin)\.py|torchvision/datasets/folder\.py"
    )),
    (TRANSFORM, re.compile(
        r"/torchvision/transforms/|/(albumentations|kornia|imgaug|skimage|tokenizers|audiomentations|monai)/"
        r"|/torchaudio/(transforms|functional)|/transformers/(tokenization|image_processing|feature_extraction)"
    )),
)  # fmt: skip

_READS = (
    "read reading reader load loads loading loader open imread fromfile loadtxt genfromtxt memmap fetch fetching"
    " download urlopen request requests decode execute query disk file files recv io"
)
_TRANSFORMS = (
    "transform transforms transforming augment augmentation augmentations augmenter preprocess preprocessing normalize"
    " normalise resize crop flip rotate blur jitter tokenize tokenizer tokenise spectrogram stft mel warp affine"
    " elastic distort"
)
_VERBS = {**dict.fromkeys(_READS.split(), READING), **dict.fromkeys(_TRANSFORMS.split(), TRANSFORM)}
"""Words of names by which people call what reads, and what transforms."""


def stage_of(frame: FrameType | None) -> tuple[str, Spot | None] | None:
    """The stage that a thread is in and the user's line, if it is fetching a batch at all."""
    inner: list[FrameType] = []
    while frame is not None:
        name = frame.f_code.co_filename
        if name.endswith(_FETCH):
            return _fetching(frame, inner)
        if name.endswith(_LOADER) and frame.f_code.co_name in _NEXT:
            return _waiting(frame, inner)
        inner.append(frame)
        frame = frame.f_back
    return None


_NEXT = frozenset({"__next__", "_next_data", "_next_index", "_get_data", "_try_get_data"})


def _fetching(fetch: FrameType, inner: list[FrameType]) -> tuple[str, Spot | None]:
    """`inner`: the frames that `fetch` called, the deepest first."""
    spot = next((spot_of(frame) for frame in inner if is_users(frame.f_code.co_filename)), None)
    if "collate_fn(" in (spot_of(fetch).source or ""):
        return COLLATE, spot
    for frame in inner:
        stage = _stage_at(frame.f_code, frame.f_lasti)
        if stage is not None:
            return stage, spot
    return SAMPLE, spot


def _waiting(frame: FrameType, inner: list[FrameType]) -> tuple[str, Spot | None] | None:
    spot = next((spot_of(each) for each in inner if is_users(each.f_code.co_filename)), None)
    if frame.f_code.co_name == "_next_index":
        return SAMPLER, spot
    for each in inner:
        name = each.f_code.co_filename.replace(os.sep, "/")
        if name.endswith(_PASSED_ON) or each.f_code.co_name in _RECEIVES:
            return COPY, None
    others_work = frame.f_code.co_qualname.startswith("_MultiProcessing")
    return (WORKERS, None) if inner and others_work else None


@lru_cache(maxsize=512)
def _stage_at(code: CodeType, instruction: int) -> str | None:
    """What this frame is about, by the library that it is of, by its name, or by what it calls."""
    name = code.co_filename.replace(os.sep, "/")
    if not is_users(code.co_filename):
        return next((stage for stage, pattern in _LIBRARIES if pattern.search(name)), None)
    for words in (_called(Spot(code, instruction)), _own_name(code)):
        for word in words:
            if word in _VERBS:
                return _VERBS[word]
    return None


def _own_name(code: CodeType) -> list[str]:
    """The words of a function's name; of its class's where the name says nothing."""
    if code.co_name in _ENTRIES:
        return []
    if code.co_name in _NAMELESS:
        return _words(code.co_qualname.rpartition("." + code.co_name)[0].rpartition(".")[2])
    return _words(code.co_name)


_ENTRIES = frozenset({"__getitem__", "__getitems__", "__iter__", "__next__"})
_NAMELESS = frozenset({"__call__", "forward", "<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>"})


def _called(spot: Spot) -> list[str]:
    """The words of what is being called: those of `np.load` in `np.load(path)[0]`, at that very moment."""
    source, columns = spot.source, spot.columns
    if source is None or columns is None:
        return []
    text = source[slice(*columns)]
    try:
        node = parsed_expression(text)
    except (SyntaxError, ValueError):  # it goes on in the next line
        match = re.match(r"[\w.]+", text)
        return _words(match.group()) if match else []
    if not isinstance(node, ast.Call):
        return []
    words: list[str] = []
    callee = node.func
    while isinstance(callee, ast.Attribute):
        words += _words(callee.attr)
        callee = callee.value
    return words + (_words(callee.id) if isinstance(callee, ast.Name) else [])


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's, in plain words."""

    file: str
    line: int
    code: str | None


class Samples:
    """How often a thread was seen in which stage, and at which line."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, Line | None]] = Counter()
        self._lines: dict[tuple[CodeType, int], Line] = {}

    def look(self, frame: FrameType | None) -> None:
        seen = stage_of(frame)
        if seen is not None:
            self._seen[seen[0], self._line(seen[1])] += 1

    def _line(self, spot: Spot | None) -> Line | None:
        if spot is None:
            return None
        key = (spot.code, spot.instruction)
        if key not in self._lines:
            self._lines[key] = Line(spot.file, spot.line, (spot.source or "").strip() or None)
        return self._lines[key]

    def add(self, rows: list[list[Any]]) -> None:
        """What another process saw, as `rows` tells it."""
        for stage, file, line, code, count in rows:
            self._seen[stage, None if file is None else Line(file, line, code)] += count

    def rows(self) -> list[list[Any]]:
        """All of it as plain values."""
        return [
            [stage, *((None, None, None) if line is None else (line.file, line.line, line.code)), count]
            for (stage, line), count in self._seen.items()
        ]

    def shares(self) -> dict[str, float]:
        """The share of each stage, the largest first."""
        stages: Counter[str] = Counter()
        for (stage, _), count in self._seen.items():
            stages[stage] += count
        return {stage: count / stages.total() for stage, count in stages.most_common()}

    def line_of(self, stage: str) -> Line | None:
        """The user's line that was seen most often in this stage."""
        lines = Counter({line: n for (each, line), n in self._seen.items() if each == stage and line is not None})
        return lines.most_common(1)[0][0] if lines else None

    def __len__(self) -> int:
        return self._seen.total()


class Sampler(Thread):
    """Looks at another thread's stack at short intervals, until it is stopped or `seconds` are over."""

    def __init__(self, thread: int, *, interval: float = 0.002, seconds: float = 3.0) -> None:
        super().__init__(name="seismograd-sampler", daemon=True)
        self.samples = Samples()
        self._thread, self._interval, self._seconds = thread, interval, seconds
        self._stop_it = Event()

    def run(self) -> None:
        end = perf_counter() + self._seconds
        while not self._stop_it.wait(self._interval) and perf_counter() < end:
            try:
                self.samples.look(sys._current_frames().get(self._thread))
            except Exception:  # a frame may be gone while it is looked at
                continue

    def stop(self) -> Samples:
        self._stop_it.set()
        self.join(1.0)
        return self.samples
