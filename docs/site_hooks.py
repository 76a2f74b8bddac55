"""What `mkdocs.yml` cannot say: the findings in the navigation, pages from the root, links out of `docs`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

from seismograd.reports.pages import groups

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FROM_THE_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Documents that lie at the root and are pages of the site too."""
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the pages of all findings into the navigation, by group."""
    found: list[Any] = [
        {group.capitalize(): [f"findings/{page.id}.md" for page in own]} for group, own in groups().items()
    ]
    for section in config.nav or []:
        if "Findings" in section:
            section["Findings"] = [*section["Findings"], *found]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the documents that lie at the root."""
    for name, page in FROM_THE_ROOT.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to where their targets are in the site; what is not in it is named, without a link."""
    source = Path(page.file.abs_src_path or "").resolve()

    def led(link: re.Match[str]) -> str:
        text, path, anchor = link[1], link[2], link[3] or ""
        target = Path(os.path.normpath(source.parent / path))
        inside = in_the_site(target)
        if inside is not None:
            return f"[{text}]({os.path.relpath(inside, os.path.dirname(page.file.src_uri))}{anchor})"
        if not target.exists():
            return link[0]  # which mkdocs complains of
        name = target.relative_to(ROOT).as_posix()
        return text if name in text or "`" in text else f"{text} (`{name}`)"

    return LINK.sub(led, markdown)


def in_the_site(target: Path) -> str | None:
    """The site's own name for a file, if it is a page or an asset of it."""
    if target.parent == ROOT:
        return "index.md" if target.name == "README.md" else FROM_THE_ROOT.get(target.name)
    if target.is_relative_to(ROOT / "docs") and target.is_file() and target.suffix != ".py":
        return target.relative_to(ROOT / "docs").as_posix()
    return None
