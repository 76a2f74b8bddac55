"""What each program says of itself, and whether an answer agrees with it. Standard library only.

A program is a training script as users write them. Its header, between the docstring and the first statement, has

    # op: aten.sqrt|aten.linalg_vector_norm   the op at fault; in backward the forward op; `-`: none, the data are bad
    # phase: backward                         input, forward, loss, backward or optimizer
    # module: encoder.layers.3                its path; the class for a root module; `-`: outside of modules
    # conditions: amp accumulation            what else makes it hard
    # file: shared/losses.py                  where the line stands, if not in the program itself
    # line: any                               there is no line to name: the phase has to be right

`|` separates answers that are all right. The line itself ends in `# <-- origin`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "programs"
MARK = "# <-- origin"
PHASES = frozenset({"input", "forward", "loss", "backward", "optimizer"})
KEYS = frozenset({"op", "phase", "module", "conditions", "file", "line"})
NEEDED = frozenset({"op", "phase", "module", "conditions"})


@dataclass(frozen=True)
class Answer:
    """What a tool said of one program; `None` where it said nothing."""

    file: str | None = None
    line: int | None = None
    op: str | None = None
    module: str | None = None
    phase: str | None = None
    unsure: bool = False
    said: str = ""
    """Its own words, in short, or why there is no answer."""


@dataclass(frozen=True)
class Program:
    """One program and the truth about it."""

    path: Path
    file: Path
    line: int | None
    """`None`: any, the phase counts."""
    ops: tuple[str, ...]
    phases: tuple[str, ...]
    modules: tuple[str, ...]
    conditions: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def place(self) -> str:
        """The truth in a few words."""
        line = "" if self.line is None else f":{self.line}"
        module = "" if self.modules[0] == "-" else f" in {self.modules[0]}"
        return f"{self.phases[0]}{line} {'' if self.ops[0] == '-' else self.ops[0]}{module}"

    def line_right(self, answer: Answer) -> bool:
        if self.line is None:
            return answer.phase in self.phases
        return answer.line == self.line and answer.file is not None and Path(answer.file).resolve() == self.file

    def op_right(self, answer: Answer) -> bool:
        if self.ops == ("-",):
            return answer.phase in self.phases
        return answer.op is not None and _plain(answer.op) in {_plain(op) for op in self.ops}

    def module_right(self, answer: Answer) -> bool:
        """Nothing said of the module is right where the fault is outside of them, and something else was said."""
        if answer.module:
            return answer.module in self.modules
        return "-" in self.modules and (answer.line is not None or answer.phase is not None)


def _plain(op: str) -> str:
    """`aten._softmax.default`, `aten.softmax_` and `SoftmaxBackward0` are one op."""
    name = op.removeprefix("aten.").split(".")[0]
    return re.sub(r"backward\d*$", "", name.replace("_", "").lower())


def read(path: Path) -> Program:
    """The program at `path`; a `ValueError` says what is wrong with its header."""
    text = path.read_text(encoding="utf-8")
    docstring, first = ast.parse(text).body[:2]
    lines = text.splitlines()[docstring.end_lineno : first.lineno - 1]
    pairs = [match.groups() for line in lines if (match := re.fullmatch(r"# (\w+): (.+)", line))]
    header = dict(pairs)
    if len(pairs) != len(header) or not NEEDED <= header.keys() <= KEYS:
        raise ValueError(f"{path.name}: its header has {sorted(key for key, _ in pairs)}, needed are {sorted(NEEDED)}")
    phases = tuple(header["phase"].split("|"))
    if not PHASES.issuperset(phases):
        raise ValueError(f"{path.name}: phase {header['phase']!r} is unknown: use one of {', '.join(sorted(PHASES))}")
    file = (path.parent / header.get("file", path.name)).resolve()
    marked = [at for at, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1) if line.endswith(MARK)]
    if len(marked) != ("line" not in header):
        raise ValueError(f"{file.name}: {MARK!r} stands on {len(marked)} lines, and not on the one at fault")
    return Program(
        path=path.resolve(),
        file=file,
        line=marked[0] if marked else None,
        ops=tuple(header["op"].split("|")),
        phases=phases,
        modules=tuple(header["module"].split("|")),
        conditions=tuple(header["conditions"].split()),
    )


def programs() -> list[Program]:
    return [read(path) for path in sorted(FOLDER.glob("*.py"))]
