"""The gallery: small training scripts, sick and healthy, that can be run and read."""

from __future__ import annotations

import ast
import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rich.console

from seismograd.reports.report import write_report
from seismograd.reports.terminal import render_verdict

FIRST = "nan"
"""The one that `seismograd demo` runs."""


@dataclass(frozen=True)
class Demo:
    """One script of the gallery, `sick` or `healthy`."""

    name: str
    kind: str
    path: Path

    @property
    def title(self) -> str:
        """The first line of the script's docstring."""
        docstring = ast.get_docstring(ast.parse(self.path.read_text(encoding="utf-8"))) or ""
        return docstring.partition("\n")[0]


def gallery() -> dict[str, Demo]:
    """The demos by name, sick ones first, and of those `nan`."""
    demos = [
        Demo(path.stem, kind, path)
        for kind in ("sick", "healthy")
        for path in sorted((_home() / kind).glob("*.py"))
        if not path.stem.startswith("_")
    ]
    demos.sort(key=lambda demo: demo.name != FIRST)
    return {demo.name: demo for demo in demos}


def _home() -> Path:
    """In a wheel the examples lie in the package; in a checkout that is a link to `examples/`."""
    packaged = Path(__file__).resolve().parents[1] / "examples"
    if packaged.is_dir():
        return packaged.resolve()
    return Path(__file__).resolve().parents[3] / "examples"  # a checkout on a system without links


def run(demo: Demo, report_path: Path | None = None) -> None:
    """Runs the script as `python` would, then says on stderr what is still to be said, and writes the report."""
    console = rich.console.Console(stderr=True, highlight=False)
    console.print(f"seismograd: {demo.title}", markup=False, soft_wrap=True)
    console.print(f"seismograd: running {_short(demo.path)}\n", markup=False, soft_wrap=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # models as small as these are fastest on one thread
    made = _run_script(demo.path)

    from seismograd.training import TrainingDebugger  # by now the script has imported torch

    watch = next(value for value in made.values() if isinstance(value, TrainingDebugger))
    report = watch.report()
    if report["run"]["status"] == "healthy":  # a sick run has got its verdict from the watch itself
        console.print(render_verdict(report))
    console.print()
    if report_path is not None:
        write_report(report, report_path)
        console.print(f"seismograd: the report is in {report_path}", markup=False, soft_wrap=True)
    for finding in report["findings"][:1]:
        console.print(f"seismograd: for more type: seismograd explain {finding['id']}", markup=False, soft_wrap=True)


def _run_script(path: Path) -> dict[str, Any]:
    """Runs the script as the main program and returns the names it made."""
    argv = sys.argv
    sys.argv = [str(path)]
    try:
        return runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv = argv


def _short(path: Path) -> str:
    """`path` as seen from the working directory where it lies below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
