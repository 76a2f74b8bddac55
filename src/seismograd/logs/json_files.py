"""JSON: lines of objects (ours, or anybody's), Hugging Face's `trainer_state.json`, Keras' history, printed dicts."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seismograd.logs.log import Entry, Log, LogError, listed, number_of
from seismograd.logs.names import side_word
from seismograd.logs.padding import take_padding_out
from seismograd.logs.rows import entry_of, side_column, step_column
from seismograd.logs.texts import text_of

_OPEN = ("scalars", "metrics", "data", "values", "log", "logs")
"""Objects inside a line whose names stand for themselves."""
_BARE = re.compile(r"(?<![\w'\"])(-?)(nan|inf|infinity)(?![\w'\"])", re.IGNORECASE)
_READING = "reading"
_KINDS = (None, "metrics", "log", "scalars")
"""Lines of others that hold what was measured."""


def read_json(path: Path, step: str | None = None, run: str | None = None) -> Log:
    """The log in a file of JSON, whole or by the line. Our own lines may be of several runs: the last, or as named."""
    text = text_of(path)
    if not text.strip():
        raise LogError(f"{str(path)!r} is empty: nothing was logged to it")
    log = Log(str(path), "json", name=path.parent.name if path.name == "trainer_state.json" else path.stem)
    records, wrong = _records(text)
    if wrong:
        log.notes.append(f"{wrong:,} lines hold no JSON object, and were left out")
    readings = [each for each in records if each.get("kind") == _READING]
    if readings:
        return _ours(log, readings, {each.get("run"): each.get("name") for each in records if "name" in each}, run)
    if run is not None:
        raise LogError(f"run={run!r}: {str(path)!r} is the log of one run, leave it out")
    flat = [_flat(each) for each in records if (kind := each.get("kind")) in _KINDS or side_word(kind)]
    side = side_column(flat)
    log.steps_from = step_column(dict.fromkeys(name for row in flat for name in row), step)
    for row in flat:
        values = _numbers(row, log)
        if "train_runtime" in values:  # Hugging Face's last line sums up: its loss is a mean of all
            values.pop("train_loss", None)
        if (entry := entry_of(values, log.steps_from, side_word(row.get(side)))) is not None:
            log.entries.append(entry)
    if not log.entries:
        kind = "no object with a number in it" if records else "no JSON object"
        raise LogError(f'{str(path)!r} has {kind}: a line has to look like {{"step": 1, "loss": 0.5}}')
    take_padding_out(log)
    return log


def _ours(log: Log, readings: Sequence[Mapping[str, Any]], names: Mapping[Any, Any], run: str | None) -> Log:
    """The readings of one run, as our sink wrote them."""
    known = list(dict.fromkeys(str(each.get("run")) for each in readings))
    chosen = known[-1] if run is None else next((each for each in known if run in (each, names.get(each))), None)
    if chosen is None:
        raise LogError(f"there is no run {run!r} in {log.source!r}: there is {listed(known)}")
    if len(known) > 1 and run is None:
        log.notes.append(f"of {len(known)} runs the last is read, {chosen!r}; run= takes another")
    log.ours, log.steps_from, log.name = True, "step", str(names.get(chosen) or log.name)
    for each in readings:
        scalars, step = each.get("scalars"), number_of(each.get("step"))
        if str(each.get("run")) == chosen and isinstance(scalars, Mapping) and step is not None:
            marks = each.get("marks")
            log.entries.append(
                Entry(
                    _numbers(scalars, log),
                    step,
                    number_of(each.get("time")),
                    rank=_whole(each.get("rank")) or 0,
                    series=_whole(each.get("series")),
                    marks=frozenset(map(str, marks)) if isinstance(marks, list) else frozenset(),
                )
            )
    if not log.entries:
        raise LogError(f"{log.source!r} has readings without scalars: nothing can be judged")
    return log


def _numbers(row: Mapping[str, Any], log: Log) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, value in row.items():
        number = number_of(value)
        if number is not None:
            values[name] = number
        elif value is None:
            log.nulls[name] = log.nulls.get(name, 0) + 1
    return values


def _records(text: str) -> tuple[list[Mapping[str, Any]], int]:
    """The objects in it, and how many lines have none."""
    whole = _parsed(text)
    if isinstance(whole, Mapping):
        for name in ("log_history", "history"):
            inside = whole.get(name)
            if isinstance(inside, (list, Mapping)):
                whole = inside
                break
    if isinstance(whole, Mapping):
        columns = {str(name): each for name, each in whole.items() if isinstance(each, list)}
        if columns:
            longest = max(map(len, columns.values()))
            return [{name: each[at] for name, each in columns.items() if at < len(each)} for at in range(longest)], 0
        return [whole], 0
    if isinstance(whole, list):
        return [each for each in whole if isinstance(each, Mapping)], 0
    found, wrong = [], 0
    for line in text.splitlines():
        if line.strip():
            record = _line(line)
            if record is None:
                wrong += 1
            else:
                found.append(record)
    return found, wrong


def _line(line: str) -> Mapping[str, Any] | None:
    """The object in a line, which may stand behind a time or a level, and may be a dict that was printed."""
    start, end = line.find("{"), line.rfind("}")
    if start < 0 or end < start:
        return None
    body = line[start : end + 1]
    found = _parsed(body)
    if found is None and len(body) < 20_000:
        try:
            found = ast.literal_eval(_BARE.sub(r"'\1\2'", body))
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return found if isinstance(found, Mapping) else None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _flat(record: Mapping[str, Any], depth: int = 3) -> dict[str, Any]:
    """The values of an object by name, those of objects inside it behind a stroke."""
    return dict(_walked(record, "", depth))


def _walked(record: Mapping[str, Any], before: str, depth: int) -> Iterator[tuple[str, Any]]:
    items: Iterable[tuple[Any, Any]] = record.items()
    for key, value in items:
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            if depth:
                yield from _walked(value, before if str(key) in _OPEN else f"{name}/", depth - 1)
        else:
            yield name, value


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1_000_000 else None
