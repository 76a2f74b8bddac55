"""A console for what comes from a run: its texts are text, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROLS = {code: None for code in (*range(32), *range(127, 160)) if chr(code) != "\n"}
"""They go: rich has counted them as nothing when it broke the lines."""


class Plain(Console):
    """A console on which no text of a run, a layer's name say, can move the cursor or change a colour."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(segment.text.translate(_CONTROLS), segment.style)
