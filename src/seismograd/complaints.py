"""What Seismograd has to say about itself, without getting in the way."""

from __future__ import annotations

import sys
import warnings


class SeismogradWarning(RuntimeWarning, UserWarning):
    """Everything that Seismograd warns of: `warnings.filterwarnings("ignore", category=SeismogradWarning)`."""


def complain(text: str, stacklevel: int = 4) -> None:
    """Warns, and never raises: where the user turns warnings into errors it is said on stderr."""
    try:
        warnings.warn(text, SeismogradWarning, stacklevel=stacklevel)
    except Exception:
        print(text, file=sys.stderr)  # noqa: T201
