"""The documents say what the code does: their Python blocks run, and the page of findings is up to date."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
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


def test_the_page_of_findings_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "make_findings.py"))["document"]()
    kept = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert kept == made, "run: make docs"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_to_files_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert "://" in target or (path.parent / target).exists(), target
