"""What is used of rich, which draws a random number when it is imported: not one of the script's."""

from __future__ import annotations

import random

_state = random.getstate()
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult  # noqa: E402
from rich.text import Text  # noqa: E402

random.setstate(_state)

__all__ = ["Console", "ConsoleOptions", "RenderResult", "RenderableType", "Text"]
