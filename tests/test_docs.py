"""The documents say what the code does: their Python blocks run, and the generated pages are up to date."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import seismograd
import seismograd.sinks
import seismograd.testing

from .documents import DOCUMENTS, FENCE, ROOT, fences, name_of

ONE_PROGRAM = re.compile(r"^<!-- one program -->$", re.MULTILINE)
"""On a page whose Python blocks go on from each other."""
MOST_NOT_RUN = 12


def programs() -> Iterator[Any]:
    """What is run: each Python block, or all of a page together where the page says so."""
    for path in DOCUMENTS:
        found = [(line, text) for line, language, text, left in fences(path) if language == "python" and not left]
        if found and ONE_PROGRAM.search(path.read_text(encoding="utf-8")):
            found = [(found[0][0], "\n".join(text for _, text in found))]
        for line, text in found:
            yield pytest.param(text, id=f"{name_of(path)}:{line}")


def names_a_reader_has() -> dict[str, Any]:
    """What a snippet may take for granted: a model, its optimizer, a loss function and a few batches."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loss_fn": nn.CrossEntropyLoss(),
        "batches": [(torch.randn(8, 4), torch.randint(0, 2, (8,))) for _ in range(4)],
        "__name__": "__main__",
    }


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated.*")  # of what the frameworks import
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:The number of training batches.*")
@pytest.mark.parametrize("source", list(programs()))
def test_a_python_block_runs(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEISMOGRAD_STORE")  # runs are recorded, as a reader's are
    with contextlib.chdir(tmp_path), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, "<block>", "exec"), names_a_reader_has())


def test_every_python_block_is_seen_and_few_are_left_out() -> None:
    odd, left_out = [], []
    for path in DOCUMENTS:
        for line, language, text, left in fences(path):
            place = f"{name_of(path)}:{line}"
            if re.match(r"py|ipython", language) and language != "python":
                odd.append(f"{place}: ```{language}: write ```python, or why not in a comment before it")
            if language == "python" and left:
                left_out.append(place)
            assert left or language or "import seismograd as sg" not in text, (
                f"{place}: a Python block without its name"
            )
    assert not odd
    assert len(left_out) <= MOST_NOT_RUN, left_out


def test_the_finding_in_the_readme_is_the_one_that_the_demo_prints() -> None:
    shown = re.search(r"<!-- demo.*-->\n```\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "seismograd", "demo"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    assert without_numbers(shown[1]) in without_numbers(done.stderr)


def without_numbers(text: str) -> str:
    """The words: counts and times differ from machine to machine, and lines break elsewhere then."""
    text = re.sub(r", overhead [\d.]+%", "", text)  # of a run on a slow machine
    return " ".join(re.sub(r"[\d.,%]*\d[\d.,%]*", "0", text).split())


def test_the_pages_of_findings_are_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_findings.py"))["documents"]()
    kept = {
        path.relative_to(ROOT / "docs").as_posix(): path.read_text(encoding="utf-8")
        for path in (ROOT / "docs" / "findings.md", *(ROOT / "docs" / "findings").glob("*.md"))
    }
    assert kept == made, "run: make findings"


def fragments() -> Iterator[Any]:
    """The examples on the pages of findings: a few lines of somebody's loop, so they cannot be run by themselves."""
    for path in sorted((ROOT / "docs" / "findings").glob("*.md")):
        text = FENCE.sub("", path.read_text(encoding="utf-8"))
        for number, block in enumerate(re.findall(r"^\n((?:^ {4}.*\n(?:\n(?= {4}))?)+)", text, re.MULTILINE)):
            yield pytest.param(textwrap.dedent(block), id=f"{path.stem}:{number}")


@pytest.mark.parametrize("source", list(fragments()))
def test_a_fragment_is_python_and_what_it_names_exists(source: str) -> None:
    import torch

    roots = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "sg": seismograd}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            root, *names = ast.unparse(node).split(".")
            if root in roots and all(name.isidentifier() for name in names):
                assert attrgetter(".".join(names))(roots[root]) is not None


def test_every_public_name_is_in_the_reference() -> None:
    shown = {
        line.removeprefix("::: ").strip().rpartition(".")[2]
        for path in (ROOT / "docs" / "api").glob("*.md")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("::: ")
    }
    public = {*seismograd.__all__, *seismograd.sinks.__all__, *seismograd.testing.__all__}
    missing = public - {"__version__"} - shown
    assert not missing, "put a line `::: seismograd.NAME` for each into a page of docs/api"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_to_files_lead_somewhere(path: Path) -> None:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert "://" in target or target.startswith("mailto:") or (path.parent / target).exists(), target
