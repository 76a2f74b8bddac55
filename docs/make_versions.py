"""Makes docs/versions.md from the table of packages: `python docs/make_versions.py`."""

from pathlib import Path

from seismograd.cli.packages import versions_document

if __name__ == "__main__":
    (Path(__file__).parent / "versions.md").write_text(versions_document(), encoding="utf-8")
