"""How an object is reached from a name of the user's, and the containers that are met on the way."""

from __future__ import annotations

from dataclasses import dataclass
from types import FunctionType
from typing import Any

Key = int


@dataclass(frozen=True, slots=True)
class Root:
    """Where a way begins."""

    scope: str
    """`local`, `global`, `module` (of a model under watch), `threads`."""
    owner: str
    """The function, the file, the model."""
    file: str | None = None
    line: int | None = None
    """Of the function's first line."""
    passing: bool = False
    """Whether it is a local of a function that is called again and again, and dies with each call."""


@dataclass(frozen=True, slots=True)
class Node:
    """One step on the way to an object."""

    above: Node | None
    label: str
    """`history`, `.cache`, `['loss']`; `(hook)` for what a function holds."""
    root: Root
    key: Key
    depth: int
    holder: type | None = None
    """The class of the object whose attribute this is."""
    function: FunctionType | None = None
    """The function whose closure, default argument or attribute this is."""
    sort: str = ""
    """`closure`, `default`, `hooks`, `class`: what kind of place it is, where the root does not say."""

    def below(self, label: str, **more: Any) -> Node:
        return Node(self, label, self.root, hash((self.key, label)), self.depth + 1, **more)

    @property
    def labels(self) -> list[str]:
        """From the root on; what a function holds has a name of its own."""
        labels: list[str] = []
        node: Node | None = self
        while node is not None:
            labels.append(node.label)
            node = None if node.sort in _ANEW else node.above
        return labels[::-1]

    @property
    def name(self) -> str:
        return "".join(self.labels).removeprefix(".").replace(".__self__", "")


_ANEW = frozenset({"closure", "default", "class"})


@dataclass(slots=True)
class Container:
    """Something with a length, met on the way."""

    thing: Any
    node: Node
    kind: str
    """`list`, `dict`, `deque`, `set`, `tensor`, `array`, `hooks`, `cache`, `threads`, or a class of the user's."""
    length: int
    limit: int | None = None
    """The length that it cannot go beyond, where it says so itself."""
    owner: Any = None
    """The object whose attribute it is."""


def plain(name: str) -> str:
    """A function's qualified name as the source has it; nothing for a module's own code."""
    return "" if name == "<module>" else name.replace(".<locals>", "")
