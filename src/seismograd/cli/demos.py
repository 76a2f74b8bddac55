"""The gallery: small training scripts, sick and healthy, that can be run and read."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import typer

from seismograd.run.script import Script
from seismograd.run.supervisor import Options
from seismograd.run.supervisor import run as start

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


def run(demo: Demo, report: Path | None = None, html: Path | None = None) -> NoReturn:
    """Runs the script as `seismograd run` does, and says what more there is to see."""
    _say(f"seismograd: {demo.title}", f"seismograd: running {_short(demo.path)}", "")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # models as small as these are fastest on one thread

    def after(found: dict[str, Any]) -> None:
        lines = [] if report is None else [f"seismograd: the report is in {report}"]
        lines += [] if html is None else [f"seismograd: the page is in {html}"]
        lines += [f"seismograd: for more type: seismograd explain {each['id']}" for each in found["findings"][:1]]
        _say("", *lines)

    start(Script(path=str(demo.path)), Options(report=report, html=html, capture=False), after=after)


def _say(*lines: str) -> None:
    for line in lines:
        typer.echo(line, err=True)


def _short(path: Path) -> str:
    """`path` as seen from the working directory where it lies below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
