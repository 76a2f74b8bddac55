"""The documents say what the code does: their Python blocks run, and the page of findings is up to date."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block[1], id=f"{path.name}:{path.read_text()[: block.start()].count(chr(10)) + 1}")
    for path in DOCUMENTS
    for block in BLOCK.finditer(path.read_text(encoding="utf-8"))
]


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


@pytest.mark.parametrize("source", BLOCKS)
def test_a_python_block_runs(source: str, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, "<block>", "exec"), names_a_reader_has())


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


def test_the_page_of_findings_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_findings.py"))["document"]()
    kept = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert kept == made, "run: make docs"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert "://" in target or (path.parent / target).exists(), target
