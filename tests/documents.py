"""The documents of the project, and the blocks in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(r"^( *)(`{3,})([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: \S.*? -->\s*\Z")
"""Stands before a block that cannot run as it is, and says why."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def fences(path: Path) -> Iterator[tuple[int, str, str, bool]]:
    """The blocks of a document: line, language, text without its indent, and whether it is marked as not to be run."""
    text = path.read_text(encoding="utf-8")
    for block in FENCE.finditer(text):
        indent, language, body = block[1], block[3].strip(), block[4]
        line = text[: block.start()].count("\n") + 1
        unmarked = NOT_RUN.search(text[: block.start()]) is None
        yield line, language, re.sub(f"^{indent}", "", body, flags=re.MULTILINE), not unmarked
