"""The line of code where a fault began, with a mark under the op, as good compilers draw it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seismograd.quiet_rich import Console, Text
from seismograd.records import Finding

GUTTER = "bold blue"

DRAWN = {
    *("origin", "pattern", "value", "op", "forward_op", "bad", "size", "shape", "dtype", "index", "first_bad"),
    *("inputs", "arguments", "columns", "note", "sure", "library", "compiled", "gradient_zero", "function", "model"),
    *("argument", "samples", "of_samples", "step", "optimizer", "parameter", "made_by", "limit"),
    *("time_step", "call", "calls", "micro_batch", "micro_batches", "capture", "capture_note"),
}
"""Evidence of an origin that message, place, picture and notes tell already."""

_INDENT = 4
"""Of the code, whatever it is in the file."""

_DOTS = "\N{HORIZONTAL ELLIPSIS}"


def margin(finding: Finding) -> int:
    """How many columns stand left of the bar: the number of the line, if it is shown, and a blank."""
    where = finding.where
    return max(3, len(str(where.line)) + 1) if where.code and where.line is not None else 3


def draw(finding: Finding, console: Console, width: int, style: str, brief: bool) -> list[Text]:
    """The code with its number; where the op's columns are known, the mark, and what went into the op.

    `brief` draws the mark alone. Without code there is nothing to draw.
    """
    where, left = finding.where, margin(finding)
    if not (where.code and where.code.strip()):
        return []
    bar = Text(f"{' ' * left}| ", GUTTER)
    number = Text(f"{'' if where.line is None else where.line:>{left - 1}} | ", GUTTER)
    room = width - len(bar)
    indent = _INDENT if room >= 40 else 0
    code, start, length = _cut(where.code, finding.evidence, room - indent)
    lines = [number + Text(" " * indent + code)]
    if length and not brief:
        lines.insert(0, Text(f"{' ' * left}|", GUTTER))
    if length:
        under = bar + Text(" " * (indent + start)) + Text("^" * length, style)
        label = Text("" if brief else describe_inputs(finding), style)
        if label and under.cell_len + 1 + label.cell_len <= width:
            lines.append(under + Text(" ") + label)
        else:
            lines += [under, *_below(bar, label, indent + start, console, room)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
        line.rstrip()
    return lines


def describe_inputs(finding: Finding) -> str:
    """What went into the op, in few words: `aten.sqrt: inputs 0 to 3.1, 14 of 512 are 0`."""
    every = finding.evidence.get("inputs") or ()
    inputs = [each for each in every if each.get("name") != "grad"] or every
    told = "; ".join(filter(None, (_input(each, alone=len(inputs) == 1) for each in inputs[:3])))
    op = finding.where.op or ""
    return f"{op}: {told}" if op and told else told or op


def _input(data: Mapping[str, Any], alone: bool) -> str:
    low, high, size = data.get("low"), data.get("high"), data.get("size") or 0
    name = str(data.get("parameter") or data.get("name") or "input")
    if alone and not data.get("parameter"):
        name = "input" if size == 1 else "inputs"
    words = []
    if low is not None and high is not None:
        words.append(f"{name} {low:.3g}" if low == high else f"{name} {low:.3g} to {high:.3g}")
    for key, word in (("zeros", "0"), ("nan", "NaN"), ("inf", "infinite")):
        count = data.get(key) or 0
        if count and (size > 1 or key != "zeros"):
            words.append(f"{'' if words else name + ' '}{count:,} of {size:,} {'is' if count == 1 else 'are'} {word}")
    return ", ".join(words)


def parts_of(code: str, evidence: Mapping[str, Any]) -> tuple[str, str, str]:
    """The code without its indentation: what stands before the op, the op where its columns are known, what follows."""
    start, end = _columns(evidence) or (0, 0)
    before, op, after = (part.expandtabs(4) for part in (code[:start], code[start:end], code[end:].rstrip()))
    before = before.lstrip()
    if not before:
        op = op.lstrip()
    if not before and not op:
        after = after.lstrip()
    if not after:
        op = op.rstrip()
    return before, op, after


def _columns(evidence: Mapping[str, Any]) -> tuple[int, int] | None:
    """Where the op stands in the code, if what is said of it can be."""
    columns = evidence.get("columns")
    if not isinstance(columns, (list, tuple)) or len(columns) != 2:
        return None
    start, end = columns
    return (start, end) if isinstance(start, int) and isinstance(end, int) and 0 <= start < end else None


def _cut(code: str, evidence: Mapping[str, Any], room: int) -> tuple[str, int, int]:
    """The code without its indentation, in `room` columns, and the beginning and length of what is marked in it.

    What is cut off of a long line is what is far from the mark.
    """
    room = max(room, 1)
    before, op, after = parts_of(code, evidence)
    if op and len(before) + len(op) + len(after) > room:
        kept = max(0, room - len(op) - min(len(after), room // 4))
        if kept < len(before):
            before = _DOTS + before[len(before) - kept + 1 :] if kept > 1 else ""
    whole = Text(before + op + after)
    whole.truncate(room, overflow="ellipsis")
    at = Text(before).cell_len
    return whole.plain, at, max(0, min(Text(op).cell_len, room - at))


def _below(bar: Text, label: Text, start: int, console: Console, room: int) -> list[Text]:
    """A label that does not fit beside its mark: under it, or as far left as it has to be."""
    if not label or room < 1:
        return []
    lines = label.wrap(console, room)
    shift = min(start, max(0, room - max(line.cell_len for line in lines)))
    return [bar + Text(" " * shift) + line for line in lines]
