"""Faults with what follows from them: a cause is told first, its effects under it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seismograd.judge import causes_of, launch_of
from seismograd.records import Finding


@dataclass
class Story:
    """A fault, what follows from it, and the other runs that have it too."""

    finding: Finding
    effects: list[Story] = field(default_factory=list)
    also: list[int] = field(default_factory=list)

    @property
    def runs(self) -> list[int]:
        return sorted({self.finding.evidence.get("run", 0), *self.also})

    def after(self) -> Iterable[Story]:
        """All that follows, each followed by what follows from it."""
        for effect in self.effects:
            yield effect
            yield from effect.after()


def stories(findings: Sequence[Finding]) -> list[Story]:
    """The faults in their order, each with its effects. What several runs have in common is told once."""
    told: dict[Any, Story] = {}
    story_of: list[Story] = []
    cause_of = causes_of(findings, apart=launch_of)
    for at, finding in enumerate(findings):
        run, cause = finding.evidence.get("run"), cause_of[at]
        same = at if run is None else (finding.key, cause is not None and findings[cause].key)
        story = told.setdefault(same, Story(finding))
        if run is not None and run not in story.runs:
            story.also.append(run)
        story_of.append(story)
    causes: dict[int, Story] = {}  # by the identity of the effect
    for story, cause in zip(story_of, cause_of, strict=True):
        if cause is not None:
            causes.setdefault(id(story), story_of[cause])
    roots = []
    for story in told.values():
        if _in_circle(story, causes):
            del causes[id(story)]
        if id(story) in causes:
            causes[id(story)].effects.append(story)
        else:
            roots.append(story)
    return roots


def _in_circle(story: Story, causes: Mapping[int, Story]) -> bool:
    """Whether its causes lead back to the story itself."""
    at, seen = causes.get(id(story)), set[int]()
    while at is not None and at is not story and id(at) not in seen:
        seen.add(id(at))
        at = causes.get(id(at))
    return at is story
