"""CSV: Lightning's `metrics.csv` with its sparse rows, what pandas writes, plain `step,loss`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from seismograd.logs.log import Log, LogError, number_of
from seismograd.logs.names import is_loss, is_validation_loss, side_word
from seismograd.logs.rows import entry_of, side_column, step_column
from seismograd.logs.texts import text_of

_DELIMITERS = ",;\t|"


def read_csv(path: Path, step: str | None = None) -> Log:
    """The log in a file with a line of names."""
    text = text_of(path)
    lines = text.lstrip("\r\n").splitlines()
    if not lines:
        raise LogError(f"{str(path)!r} is empty: nothing was logged to it")
    delimiter = max(_DELIMITERS, key=lines[0].count)
    try:
        rows = list(csv.reader(io.StringIO(text.lstrip("\r\n"), newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise LogError(f"{str(path)!r} is no CSV: {error}") from None
    header = _names(rows[0], path)
    log = Log(str(path), "csv", name=path.stem)
    log.steps_from = step_column(header, step)
    side = side_column(dict(zip(header, row, strict=False)) for row in rows[1:])
    padded = _padded(header, rows[1:])
    broken = 0
    for row in rows[1:]:
        if not any(cell.strip() for cell in row) or [cell.strip() for cell in row] == header:
            continue
        if len(row) != len(header):
            broken += 1
        cells = dict(zip(header, row, strict=False))
        values = {name: number for name, cell in cells.items() if (number := number_of(cell)) is not None}
        if padded and _is_padding(values, padded):
            values = {name: value for name, value in values.items() if not math.isnan(value)}
        if (entry := entry_of(values, log.steps_from, side_word(cells.get(side)))) is not None:
            log.entries.append(entry)
    if broken:
        log.notes.append(f"{broken:,} of {len(rows) - 1:,} lines have another number of fields than the first")
    if padded:
        log.notes.append(
            "NaN stands for a value that was not logged where a row has either a loss or a validation loss"
        )
    if not any(entry.values for entry in log.entries):
        raise LogError(f"{str(path)!r} has no number below its first line ({', '.join(header[:8])})")
    return log


def _names(row: Sequence[str], path: Path) -> list[str]:
    header = [cell.strip() for cell in row]
    if header and not header[0]:  # pandas' index
        header[0] = "index"
    if all(number_of(cell) is not None for cell in header if cell) or not any(header):
        raise LogError(f"{str(path)!r} has no names in its first line: write one there, such as step,loss")
    return header


def _padded(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[str]] | None:
    """The columns of losses and validation losses, if each row has only one of them and NaN for the other.

    So pandas is told to write by some; a run whose loss is NaN has no row with a validation loss alone.
    """
    losses = [name for name in header if is_loss(name)]
    validations = [name for name in header if is_validation_loss(name)]
    if not losses or not validations:
        return None
    kinds = set()
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        found = {name: number_of(cells.get(name)) for name in (*losses, *validations)}
        if any(value is None for value in found.values()):
            return None
        loss, validation = (any(found[name] == found[name] for name in names) for names in (losses, validations))
        kinds.add((loss, validation))
    return (losses, validations) if kinds == {(True, False), (False, True)} else None


def _is_padding(values: Mapping[str, float], padded: tuple[list[str], list[str]]) -> bool:
    return any(values.get(name) == values.get(name) for names in padded for name in names)
