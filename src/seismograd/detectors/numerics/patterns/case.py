"""An origin as the patterns read it, what a pattern says of it, and the words they share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from seismograd.detectors.wording import number
from seismograd.records import Operand, Origin

LARGEST = {
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "float16": 65504.0,
    "bfloat16": 3.3895e38,
    "float32": 3.4028e38,
    "float64": 1.7976e308,
    "complex64": 3.4028e38,
    "complex128": 1.7976e308,
}
"""The largest number that a dtype holds."""

EPSILON = {"float16": "1e-4", "bfloat16": "1e-6"}
"""What to add so that it is not lost in the dtype; 1e-8 is 0 in float16."""

_NODE = re.compile(r"^([A-Z]\w*?)Backward\d*$")


def short(op: str | None) -> str:
    """The name of an op as people write it: `sqrt` for `aten.sqrt`, `aten.sqrt_.default` and `SqrtBackward0`."""
    if not op:
        return ""
    parts = op.removeprefix("torch.").removeprefix("ops.").split(".")
    if len(parts) > 1 and parts[0] in {"aten", "prims", "quantized"}:
        name = parts[1]
    else:  # an op of the user's own library keeps its name, `mine.op`; an overload is left out
        name = parts[0] if len(parts) < 2 or parts[1] == "default" or parts[1][:1].isupper() else ".".join(parts[:2])
    if node := _NODE.match(name):
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.group(1)).lower()
    return name if name.endswith("__") else name.rstrip("_") or name


def spoken(op: str | None) -> str:
    """The short name as it stands in a sentence: `softmax` for `_softmax`, `cdist` for `_cdist_forward`."""
    name = short(op).lstrip("_").removesuffix("_forward")
    return {"to_copy": "to", "linalg_vector_norm": "norm"}.get(name, name)


@dataclass(frozen=True)
class Account:
    """Why it happened, in one sentence without its full stop, and what to do about it."""

    why: str
    advice: tuple[str, ...]
    alone: bool = True
    """It needs no other fault to explain it, as an overflow does."""
    pattern: str = ""


@dataclass(frozen=True)
class Case:
    """An origin, asked the questions that patterns ask."""

    origin: Origin
    op: str
    """The op whose inputs are known: in backward that of the forward pass."""
    backward: bool = False
    step: int | None = None

    @classmethod
    def of(cls, origin: Origin, step: int | None = None) -> Case:
        """The case of `origin`; what a user's own backward computes is ordinary arithmetic."""
        written = "function" in origin.facts
        backward = origin.phase == "backward" and not written
        op = origin.forward_op if backward and origin.forward_op else origin.where.op
        return cls(origin, short(op), backward, step)

    def forward(self) -> Case:
        """The same inputs, as if the op had gone wrong in forward."""
        return replace(self, backward=False)

    @property
    def nan(self) -> bool:
        return math.isnan(self.origin.value)

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """What went into the op; not the gradient that arrived."""
        return tuple(each for each in self.origin.inputs if not (each.name == "grad" and self.backward))

    @property
    def grad(self) -> Operand | None:
        return self.operand("grad")

    def operand(self, *names: str) -> Operand | None:
        """The first input that is called so."""
        return next((each for name in names for each in self.origin.inputs if each.name == name), None)

    @property
    def first(self) -> Operand | None:
        return self.operand("self", "input", "x") or (self.operands[0] if self.operands else None)

    @property
    def other(self) -> Operand | None:
        return self.operand("other") or (self.operands[1] if len(self.operands) > 1 else None)

    @cached_property
    def finite(self) -> bool:
        """All that went in was finite, as far as it is known."""
        return not any(each.nan or each.inf for each in self.origin.inputs)

    @property
    def infinite(self) -> list[Operand]:
        """Inputs that hold infinities and no NaN: they were put there on purpose, or else they would be the origin."""
        return [each for each in self.operands if each.inf and not each.nan]

    @property
    def dtype(self) -> str:
        """Of what the op made, or else of its first input."""
        known = self.origin.dtype or (self.first.dtype if self.first else "")
        return known.removeprefix("torch.")

    @property
    def largest(self) -> float | None:
        return LARGEST.get(self.dtype)

    @property
    def epsilon(self) -> str:
        return EPSILON.get(self.dtype, "1e-8")

    @property
    def name(self) -> str:
        return spoken(self.op)

    @property
    def limit(self) -> str:
        """The largest number of the dtype, in words: `65504, the largest float16`."""
        largest = self.largest or 0.0
        return f"{f'{largest:g}' if largest < 1e6 else number(largest)}, the largest {self.dtype}"

    def argument(self, name: str) -> Any:
        """What else the op was given; autograd keeps a negative whole number as an unsigned one."""
        value = self.origin.arguments.get(name)
        return value - 2**64 if isinstance(value, int) and value >= 2**63 else value

    def scalar(self, name: str) -> float | None:
        """A number that the op was given, as an argument or as a tensor of one value."""
        value = self.argument(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        tensor = self.operand(name)
        return tensor.low if tensor is not None and tensor.low == tensor.high else None


Explain = Callable[[Case], Account | None]


@dataclass(frozen=True)
class Pattern:
    """One way in which values go bad: the ops it is looked for in, and what says whether it is this one."""

    name: str
    explain: Explain
    ops: frozenset[str] = frozenset()
    """Their short names; none: any op."""

    def read(self, case: Case) -> Account | None:
        """What it has to say; None if it does not fit."""
        if self.ops and case.op not in self.ops:
            return None
        account = self.explain(case)
        return replace(account, pattern=account.pattern or self.name) if account else None


def first_that_fits(patterns: Iterable[Pattern], case: Case) -> Account | None:
    for pattern in patterns:
        if account := pattern.read(case):
            return account
    return None


def ops(names: str) -> frozenset[str]:
    return frozenset(names.split())


def counted(count: int, size: int, noun: str, what: str) -> str:
    """`14 of 512 inputs are exactly 0`, `all 4 inputs are exactly 0`, `the input is exactly 0`."""
    if size == 1:
        return f"the {noun} is {what}"
    if count == size:
        return f"all {size:,} {noun}s are {what}"
    return f"{count:,} of {size:,} {noun}s {'is' if count == 1 else 'are'} {what}"


def magnitude(operand: Operand | None) -> float:
    """The largest finite value, without its sign; 0 where it is not known."""
    if operand is None:
        return 0.0
    return max(abs(operand.low or 0.0), abs(operand.high or 0.0))


def span(operand: Operand | None, noun: str = "input") -> str:
    """`the inputs go from 0 to 3.1`; empty where it is not known."""
    if operand is None or operand.low is None or operand.high is None:
        return ""
    if number(operand.low) == number(operand.high):
        who = f"the {noun} is" if operand.size == 1 else f"the {noun}s are all"
        return f"{who} {'' if operand.low == operand.high else 'about '}{number(operand.low)}"
    return f"the {noun}s go from {number(operand.low)} to {number(operand.high)}"


def ranges(operands: tuple[Operand, ...], show: int = 3) -> str:
    """`self from 0 to 3.1, other from -1 to 2`, of those that are known."""
    told = []
    for each in operands:
        name = f"`{each.parameter}`" if each.parameter else each.name
        if each.low is None or each.high is None:
            continue
        if number(each.low) == number(each.high):
            told.append(f"{name} {number(each.low)}")
        else:
            told.append(f"{name} from {number(each.low)} to {number(each.high)}")
    return ", ".join(told[:show])


def joined(*parts: str) -> str:
    """The parts of a sentence that there are, with semicolons."""
    return "; ".join(part for part in parts if part)
