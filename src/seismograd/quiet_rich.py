"""What is used of rich, which draws a random number when it is imported: not one of the script's."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

_state = random.getstate()
import rich.console  # noqa: E402
from rich.console import ConsoleOptions, RenderableType, RenderResult  # noqa: E402
from rich.text import Text  # noqa: E402

random.setstate(_state)


if TYPE_CHECKING:
    from rich.console import Console
else:

    class Console(rich.console.Console):
        """Writes to its file in a notebook too, where rich would make an output of the cell, whatever its file is."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**{"force_jupyter": False, **options})


__all__ = ["Console", "ConsoleOptions", "RenderResult", "RenderableType", "Text"]
