"""What each tool answers, as its schema tells it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from seismograd.server.models import Counted, Exit, Place

Number = float | Literal["NaN", "Infinity", "-Infinity"]


class Shape(BaseModel):
    """An answer; it may gain fields."""

    model_config = ConfigDict(extra="allow")


class Answer(Shape):
    """What every answer says of itself."""

    cut: bool = Field(default=False, description="Whether texts or lists were shortened to keep the answer small.")


class RunLine(Shape):
    """A run in a list."""

    id: str
    name: str
    status: str = Field(description="healthy, warning, critical or crashed")
    state: str = Field(description="live, ended, or lost: it was killed")
    steps: int
    started: str | None
    ended: str | None
    findings: Counted
    exit: Exit


class RunList(Answer):
    """A page of the runs, newest first."""

    store: str
    total: int = Field(description="How many fit.")
    offset: int
    next_offset: int | None = Field(description="Where the next page begins; null: there is none.")
    runs: list[RunLine]


class FindingLine(Shape):
    """A finding in brief; `number` is what get_finding takes."""

    number: int
    id: str
    severity: str
    step: int
    place: str
    message: str
    because: str | None = Field(description="The id of the finding that this one merely follows from.")
    run: str | None = None


class VerdictTold(Answer):
    """A run in a paragraph, and its findings."""

    run: RunLine
    title: str
    sentences: list[str]
    first: str = Field(description="What to do before anything else; empty where nothing is wrong.")
    unseen: list[str] = Field(description="What the verdict cannot speak of.")
    total_findings: int
    findings: list[FindingLine]
    last: dict[str, Any] = Field(description="The newest value of each scalar.")
    series: list[str] = Field(description="The scalars that get_series has.")


class FindingTold(Answer):
    """A finding in full."""

    run: str
    number: int
    id: str
    severity: str
    title: str
    message: str
    step: int
    last_step: int
    count: int
    rank: int
    where: Place
    place: str
    evidence: dict[str, Any]
    recommendations: list[str]
    effects: list[FindingLine] = Field(description="What follows from it.")
    same_id: list[int] = Field(description="The numbers of all findings of this id in the run.")


class Curve(Shape):
    """A scalar in buckets, each of the steps `first` to `last_step`. No spike is lost: low and high are kept."""

    first: list[int]
    last_step: list[int]
    low: list[Number]
    high: list[Number]
    mean: list[Number]
    last: list[Number] = Field(description="The bucket's last value as it was, finite or not.")
    bad: list[int] = Field(description="How many values of the bucket were NaN or infinite.")
    count: list[int]
    steps_a_point: int = Field(description="1: every step is there.")
    said: str = Field(description="The curve in words.")


class Curves(Answer):
    """Scalars over steps."""

    run: str
    rank: int
    points: int = Field(description="At most so many of each curve.")
    series: dict[str, Curve]
    available: list[str] = Field(description="The names that can be asked for.")


class Explained(Answer):
    """What a finding means; without an id, all that there can be."""

    id: str | None
    title: str | None
    markdown: str | None
    catalogue: list[dict[str, str]]


class Compared(Answer):
    """Two runs beside each other."""

    runs: list[str]
    verdict: str = Field(description="bit-equal, equal, parted or incomparable")
    same: bool
    sentence: str


class FoundFindings(Answer):
    """Findings of many runs, those of the newest run first."""

    looked_at: int = Field(description="So many runs were looked through, the newest first.")
    total_runs: int
    findings: list[FindingLine]


class Asked(Answer):
    """What was asked of a live run; `answer` is null until its process has done it."""

    run: str
    kind: str
    taken: str | None
    answer: str | None


class Deleted(Answer):
    """A run that was forgotten."""

    run: str
