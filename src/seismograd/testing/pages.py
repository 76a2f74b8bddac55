"""Where the pages of tests that fail are kept, if somebody wants them."""

from __future__ import annotations

import os
import re
from pathlib import Path

folder: Path | None = None
"""As `--seismograd-html` says."""


def path_for(name: str) -> Path | None:
    """The page of the test that is running, or of what is called so outside of one."""
    if folder is None:
        return None
    test = os.environ.get("PYTEST_CURRENT_TEST", name).rpartition(" (")[0] or name
    words = re.sub(r"[^A-Za-z0-9.]+", "-", test).strip("-")[-120:]
    path, number = folder / f"{words}.html", 2
    while path.exists():
        path, number = folder / f"{words}-{number}.html", number + 1
    return path
