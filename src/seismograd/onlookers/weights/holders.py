"""Which modules hold which parameters of the roster, which of them are called, and how they would fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torch import nn

from seismograd.onlookers.graph import Span
from seismograd.probes.watched import Roster, weight_of

_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
"""What holds modules to choose from: some of them may be called, and others not."""


@dataclass(slots=True)
class Holder:
    """A module of the models under watch."""

    path: str
    parent: str | None
    kind: str
    is_list: bool
    places: list[int]
    """Of its own parameters in the roster, not of those below it."""
    width: tuple[int, int] | None
    """How many features go in and come out, where its weight tells."""
    below: list[str] = field(default_factory=list)
    """The paths of its children."""


class Holders:
    """All modules of the models, as they were when the roster was made. Holds none of them alive."""

    def __init__(self, models: Mapping[str, nn.Module], roster: Roster) -> None:
        places = {id(parameter): at for at, parameter in enumerate(roster.parameters)}
        self.by_path: dict[str, Holder] = {}
        self.by_id: dict[int, str] = {}
        self.of_place: dict[int, str] = {}
        self.roots: list[str] = []
        for prefix, model in models.items():
            for name, module in model.named_modules():
                path = ".".join(part for part in (prefix, name) if part).replace("_orig_mod.", "")
                above = ".".join(part for part in (prefix, name.rpartition(".")[0]) if part).replace("_orig_mod.", "")
                own = [places[id(p)] for p in module._parameters.values() if p is not None and id(p) in places]
                holder = Holder(
                    path,
                    above if name else None,
                    type(module).__name__,
                    isinstance(module, _LISTS),
                    own,
                    _width(module),
                )
                if not name:
                    self.roots.append(path)
                elif above in self.by_path:
                    self.by_path[above].below.append(path)
                self.by_path[path] = holder
                self.by_id[id(module)] = path
                for place in own:
                    self.of_place.setdefault(place, path)

    def names_of(self, spans: Sequence[Span]) -> Iterator[str]:
        """The paths of the modules that were called, in the order of the calls."""
        for span in spans:
            path = self.by_id.get(id(span.module))
            if path is not None:
                yield path

    def places_below(self, path: str) -> list[int]:
        """The parameters of a module and of all below it."""
        waiting, found = [path], []
        while waiting:
            holder = self.by_path[waiting.pop()]
            found += holder.places
            waiting += holder.below
        return sorted(found)

    def alive(self, called: Iterable[str]) -> set[str]:
        """What was called, and everything around it."""
        found: set[str] = set()
        for each in called:
            path: str | None = each if each in self.by_path else None
            while path is not None and path not in found:
                found.add(path)
                path = self.by_path[path].parent
        return found

    def outermost_unused(self, path: str, alive: set[str]) -> str:
        """The largest module around this one of which nothing was called."""
        while (above := self.by_path[path].parent) is not None and above not in alive:
            path = above
        return path

    def is_passed_over(self, path: str, called: set[str], alive: set[str]) -> bool:
        """Whether a forward pass that calls its neighbours leaves it out; not one of a list to choose from."""
        above = self.by_path[path].parent
        if above is None or above not in called or self.by_path[above].is_list:
            return False
        return any(child in alive for child in self.by_path[above].below)

    def fits(self, path: str, order: Sequence[str]) -> bool:
        """Whether it would fit into the chain of calls: between two of them, after the last, or anywhere."""
        own = [self.by_path[each].width for each in self._leaves(path)]
        known = [width for width in own if width is not None]
        if not known:
            return False
        first, last = known[0][0], known[-1][1]
        chain = [width for each in order if (width := self.by_path[each].width) is not None]
        if not chain:
            return False
        gaps = [(before[1], after[0]) for before, after in pairwise(chain)]
        return (first, last) in gaps or first == chain[-1][1]

    def _leaves(self, path: str) -> Iterator[str]:
        if self.by_path[path].places:
            yield path
        for child in self.by_path[path].below:
            yield from self._leaves(child)


def _width(module: nn.Module) -> tuple[int, int] | None:
    weight = weight_of(module)
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if isinstance(module, nn.modules.conv._ConvNd):
        return module.in_channels, module.out_channels
    if isinstance(weight, nn.Parameter) and weight.ndim == 1:
        return weight.shape[0], weight.shape[0]
    return None
