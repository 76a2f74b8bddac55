"""CSV: Lightning's `metrics.csv` with its sparse rows, what pandas writes, charts of W&B, plain `step,loss`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from seismograd.logs.log import Log, LogError, listed, number_of
from seismograd.logs.names import side_word
from seismograd.logs.padding import take_padding_out
from seismograd.logs.rows import entry_of, side_column, step_column
from seismograd.logs.texts import text_of

_DELIMITERS = ",;\t|"


def read_csv(path: Path, step: str | None = None, run: str | None = None) -> Log:
    """The log in a file with a line of names; of one that holds several runs, the first or the one that is named."""
    text = text_of(path)
    lines = text.lstrip("\r\n").splitlines()
    if not lines:
        raise LogError(f"{str(path)!r} is empty: nothing was logged to it")
    delimiter = max(_DELIMITERS, key=lines[0].count)
    try:
        rows = list(csv.reader(io.StringIO(text.lstrip("\r\n"), newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise LogError(f"{str(path)!r} is no CSV: {error}") from None
    names = header = _names(rows[0], path)
    log = Log(str(path), "csv", name=path.stem)
    header = _of_a_chart(header, run, log)
    log.steps_from = step_column(header, step)
    side = side_column(dict(zip(header, row, strict=False)) for row in rows[1:])
    broken = 0
    for row in rows[1:]:
        if not any(cell.strip() for cell in row) or [cell.strip() for cell in row] == names:
            continue
        if len(row) != len(header):
            broken += 1
        cells = dict(zip(header, row, strict=False))
        cells.pop("", None)
        values = {name: number for name, cell in cells.items() if (number := number_of(cell)) is not None}
        if (entry := entry_of(values, log.steps_from, side_word(cells.get(side)) if side else None)) is not None:
            log.entries.append(entry)
    if broken:
        log.notes.append(f"{broken:,} of {len(rows) - 1:,} lines have another number of fields than the first")
    take_padding_out(log)
    if not any(entry.values for entry in log.entries):
        raise LogError(
            f"{str(path)!r} has no number below its first line ({', '.join(header[:8])}): a CSV has names there, as in "
            'step,loss, and numbers below; a line of JSON looks like {"step": 1, "loss": 0.5}'
        )
    return log


def _names(row: Sequence[str], path: Path) -> list[str]:
    header = [cell.strip() for cell in row]
    if header and not header[0]:  # pandas' index
        header[0] = "index"
    if all(number_of(cell) is not None for cell in header if cell) or not any(header):
        raise LogError(f"{str(path)!r} has no names in its first line: write one there, such as step,loss")
    return header


def _of_a_chart(header: list[str], run: str | None, log: Log) -> list[str]:
    """The names without the run's, where W&B has exported a chart: `RUN - loss`, `RUN - loss__MIN`, `RUN - loss__MAX`.

    Columns that are not of the run, and those of least and most, have no name then.
    """
    curves = [name for name in header if f"{name}__MIN" in header and f"{name}__MAX" in header and " - " in name]
    runs = list(dict.fromkeys(name.rpartition(" - ")[0] for name in curves))
    if run is not None and run not in runs:
        there = (
            f"there {'is' if len(runs) == 1 else 'are'} {listed(runs)}"
            if runs
            else "it is the log of one run, leave it out"
        )
        raise LogError(f"run={run!r}: there is no such run in {log.source!r}: {there}")
    if not runs:
        return header
    log.name = chosen = runs[0] if run is None else run
    if len(runs) > 1 and run is None:
        log.notes.append(
            f"of {len(runs)} runs the first is read, {chosen!r}; run= takes another: {listed(runs[1:], 8)}"
        )
    kept = {name: name.rpartition(" - ")[2] for name in curves if name.rpartition(" - ")[0] == chosen}
    return [kept.get(name, "" if " - " in name else name) for name in header]
