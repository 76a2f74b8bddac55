"""The notebook among the examples runs, headless, and its outputs are what a reader should see."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook" / "watch.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    notebook = nbformat.read(EXAMPLE, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    folder = tmp_path_factory.mktemp("example")
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def words(html: str) -> str:
    return re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)


def test_the_last_state_of_each_run_is_saved(executed: Any) -> None:
    outputs = [cell.outputs for cell in executed.cells if cell.cell_type == "code"]
    assert [len(each) for each in outputs] == [0, 1, 1, 1, 1, 1]
    shown = [words(each[0].data["text/html"]) for each in outputs[1:]]
    assert "healthy" in shown[0]
    assert "100 steps" in shown[0]
    assert "cell 3, line 7" in shown[1]
    assert "torch.sqrt(self.layer(x) - 10.0)" in shown[1]
    assert "sick" in shown[2]
    assert "This run looks healthy" in shown[3]
    assert "preflight" in shown[4]
    assert all("running" not in each for each in shown)


def test_it_can_be_saved_and_is_small(executed: Any) -> None:
    nbformat.validate(executed)
    assert len(nbformat.writes(executed)) < 200_000
