"""Makes `docs/findings.md` from the detectors' docstrings: `python docs/make_findings.py`."""

from __future__ import annotations

from pathlib import Path

from seismograd.reports.pages import pages

TARGET = Path(__file__).with_name("findings.md")


def document() -> str:
    """The text of `findings.md` as the detectors have it now."""
    known = pages().values()
    listed = "\n".join(f"| [`{page.id}`](#{page.id}) | {page.title} |" for page in known)
    whole = "\n".join(page.markdown(level=2) for page in known)
    return (
        "# Findings\n\n"
        "Made from the detectors by `docs/make_findings.py`: change the detector, not this file. "
        "`seismograd explain ID` shows the same page in the terminal.\n\n"
        f"| id | the fault |\n|---|---|\n{listed}\n\n{whole}"
    )


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
