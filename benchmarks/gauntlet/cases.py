"""Every program and every patient as a script of its own, and what is wrong with it.

A program is a file in `programs/sick` or `programs/healthy`: a training script as users write them, which knows nothing
of us. Those in `blind/` were written by people who knew the catalogue, and nothing of the detectors. The header of a
sick one says which findings would be a right diagnosis, and how it ends if not with 0:

    # expects: missing-zero-grad, accumulation-mismatch
    # exits: 1

A patient is a function of `tests/patients`. Its script is two lines that call it, with `sg.watch` left out.
A seed other than 0 is added to the one in `torch.manual_seed(0)`, in a copy.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from seismograd.reports.pages import pages

HERE = Path(__file__).parent
TESTS = HERE.parents[1] / "tests"
SEED = re.compile(r"\b(torch\.manual_seed|np\.random\.seed|random\.seed)\((\d+)\)")
CLASSES = {page.id: page.group for page in pages().values()}
"""The part of the catalogue that each id stands in."""


@dataclass(frozen=True)
class Case:
    """One script and the truth about it."""

    name: str
    kind: str
    """`program`, `blind` or `patient`."""
    expects: tuple[str, ...] | None
    """The ids that would be a right diagnosis; `None`: it is healthy."""
    path: Path | None = None
    exits: int = 0

    @property
    def group(self) -> str:
        """The class of its fault: that of most of the ids, the first of them if there are several."""
        if self.expects is None:
            return "healthy"
        counts = Counter(CLASSES.get(name, "other") for name in self.expects)
        return max(counts, key=lambda group: counts[group])

    def script(self, folder: Path, seed: int) -> Path:
        """A file that can be run as it is."""
        if self.path is None:
            text = f"from gauntlet.patient import run\n\nrun({self.name!r}, seed={seed})\n"
        elif seed == 0:
            return self.path
        else:
            text = SEED.sub(lambda call: f"{call[1]}({int(call[2]) + seed})", self.path.read_text(encoding="utf-8"))
        script = folder / f"{self.name}.py"
        script.write_text(text, encoding="utf-8")
        return script


def programs() -> list[Case]:
    """Those that the detectors were tried on; a `ValueError` says what is wrong with a header."""
    return _of("program", HERE / "programs")


def blind() -> list[Case]:
    """Those by others."""
    return _of("blind", HERE / "blind")


def _of(kind: str, folder: Path) -> list[Case]:
    healthy = [Case(path.stem, kind, None, path) for path in sorted((folder / "healthy").glob("*.py"))]
    return [_sick(kind, path) for path in sorted((folder / "sick").glob("*.py"))] + healthy


def _sick(kind: str, path: Path) -> Case:
    header = dict(re.findall(r"^# (expects|exits): (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE))
    if "expects" not in header:
        raise ValueError(f"{path}: there is no line `# expects: ID` that says what is wrong with it")
    return Case(path.stem, kind, tuple(header["expects"].split(", ")), path, int(header.get("exits", 0)))


def patients() -> list[Case]:
    """All functions of `tests/patients`."""
    sys.path.insert(0, str(TESTS))
    for file in sorted((TESTS / "patients").glob("*_*.py")):
        importlib.import_module(f"patients.{file.stem}")
    from patients.register import HEALTHY, SICK

    sick = [Case(name, "patient", tuple(sorted(patient.expects))) for name, patient in SICK.items()]
    return sick + [Case(name, "patient", None) for name in HEALTHY]
