"""The one switch that turns the comparison of ranks off."""

from __future__ import annotations

import os


def wanted(asked: bool | None, configured: bool) -> bool:
    """Whether ranks are compared: as asked, else as `SEISMOGRAD_RANKS` and the project's file say."""
    if asked is not None:
        return asked
    text = os.environ.get("SEISMOGRAD_RANKS", "").strip().lower()
    return text not in ("0", "off", "false", "no") if text else configured
