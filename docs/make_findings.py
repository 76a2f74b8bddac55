"""Makes `docs/findings.md` and a page for each finding in `docs/findings/` from the detectors: `make findings`."""

from __future__ import annotations

import re
from pathlib import Path

from seismograd.reports.pages import Page, groups, pages

DOCS = Path(__file__).parent
TITLES = {
    "numerics": "Numerics: values that are not finite, overflow, scales",
    "learning": "Learning: what the loss, the gradients and the weights do",
    "loop": "The loop: what the code forgot or does twice",
    "data": "Data: batches, labels, inputs",
    "resources": "Resources: time and memory",
    "ranks": "Ranks: what goes wrong between processes",
    "diffusion": "Diffusion: pipelines and their latents",
    "itself": "Seismograd itself",
}
"""What a part of the catalogue is called; a new one goes by its own name."""


def documents() -> dict[str, str]:
    """The text of every page, by its path under `docs`, as the detectors have it now."""
    return {"findings.md": _index(), **{f"findings/{page.id}.md": _document(page) for page in pages().values()}}


def _index() -> str:
    parts = [
        "# Findings\n\n"
        f"Everything that Seismograd can find, {len(pages())} faults: what each is, why it matters, how it is judged, "
        "what to try, and its limits. `seismograd explain ID` shows the same page in the terminal. "
        "Made from the detectors by `make findings`: change the detector, not these files.\n"
    ]
    for group, own in groups().items():
        rows = "\n".join(
            f'| <a id="{page.id}"></a>[`{page.id}`](findings/{page.id}.md) | {page.title} |' for page in own
        )
        parts.append(f"## {TITLES.get(group, group.capitalize())}\n\n| id | the fault |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def _document(page: Page) -> str:
    """The page of one finding, in which the ids of others are links."""
    others = set(pages()) - {page.id}

    def linked(code: re.Match[str]) -> str:
        return f"[`{code[1]}`]({code[1]}.md)" if code[1] in others else code[0]

    foot = (
        f"In the terminal: `seismograd explain {page.id}`. Not to be reported: `--ignore {page.id}`. "
        "[All findings](../findings.md)"
    )
    return re.sub(r"(?<!`)`([a-z-]+)`(?!`)", linked, page.markdown()) + f"\n---\n\n{foot}\n"


def make() -> None:
    """Writes the pages, and removes those of findings that are gone."""
    made = documents()
    (DOCS / "findings").mkdir(exist_ok=True)
    for path in (DOCS / "findings").glob("*.md"):
        if f"findings/{path.name}" not in made:
            path.unlink()
    for name, text in made.items():
        (DOCS / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    make()
