"""The shapes of the answers: what the OpenAPI schema is made from. A test holds the answers to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictStr

Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number in strict JSON."""

State = Literal["live", "ended", "lost"]
Status = Literal["healthy", "warning", "critical", "crashed"]
Kind = Literal["level", "budget", "stop", "capture", "trace", "clear"]


class Shape(BaseModel):
    """A part of an answer; more may be added to it within one version of the API."""

    model_config = ConfigDict(extra="allow")


# -- problems ----------------------------------------------------------------------------------------------------------


class Fault(BaseModel):
    """What is wrong, for programs (`code`) and for people."""

    status: int = Field(description="The HTTP status, again.")
    code: str = Field(description="A stable word for it: `no-such-run`, `not-valid`, `too-many-requests`, ...")
    message: str = Field(description="What happened, with the value.")
    hint: str = Field(description="What to do; empty where there is nothing to say.")


class Problem(BaseModel):
    """Every answer that is no success."""

    error: Fault


# -- runs --------------------------------------------------------------------------------------------------------------


class Api(Shape):
    """What answers here."""

    api: Literal[1]
    version: str
    store: str = Field(description="Where the runs are, without passwords.")
    read_only: bool = Field(description="Whether requests and deletions are refused.")
    plotly: str = Field(description="The address of plotly.js.")


class Counted(Shape):
    """How many findings of each severity there are."""

    critical: int
    warning: int
    info: int


class Exit(Shape):
    """How the process ended, as far as it is known."""

    code: int | None
    exception: str | None


class RunRow(Shape):
    """A run, as it is listed."""

    id: str
    name: str
    status: Status
    state: State = Field(description="`lost`: it neither ended nor does it write any more; it was killed.")
    level: str | None
    budget: Number | None
    overhead: Number | None = Field(description="The share of the time that watching took, as measured.")
    steps: int
    ranks: list[int]
    started: str | None
    ended: str | None
    batch: int = Field(description="Grows with every write.")
    findings: Counted
    bytes: int | None
    exit: Exit


class RunListed(RunRow):
    """A run with a small curve of its loss."""

    spark: list[Number]


class Runs(Shape):
    """A part of the list of runs, newest first."""

    runs: list[RunListed]
    total: int
    limit: int
    offset: int


class Capture(Shape):
    """A saved step."""

    step: int
    finding: str
    path: str


class TrainingSummary(Shape):
    """How many steps were seen, and at how many of them something was wrong."""

    total_steps: int
    anomaly_steps: int
    gradient_explosions: int
    gradient_vanishing: int
    loss_anomalies: int
    anomaly_rate: Number
    loss_anomaly_rate: Number
    gradient_explosion_rate: Number
    gradient_vanishing_rate: Number


class RunDetail(RunRow):
    """A run with everything that can be asked for by name."""

    names: list[str]
    tables: dict[str, list[str]]
    whole: list[tuple[int, int]] = Field(description="Spans of steps that are kept at full rate.")
    about: dict[str, Any]
    captures: list[Capture]
    summary: TrainingSummary


# -- curves ------------------------------------------------------------------------------------------------------------


class Curve(Shape):
    """A thinned curve, in columns: a point covers the steps from `first` to `steps`; extremes are kept."""

    first: list[int]
    steps: list[int]
    low: list[Number]
    high: list[Number]
    mean: list[Number]
    last: list[Number]
    count: list[int]
    bad: list[int] = Field(description="How many values were not finite.")
    times: list[Number] = Field(description="When, in seconds since 1970.")
    width: int = Field(description="Steps in a point; 1: every step is there.")


class Band(Shape):
    """A scalar over several ranks, in columns: a point covers the steps from `first` to `steps`."""

    first: list[int]
    steps: list[int]
    low: list[Number]
    q1: list[Number]
    median: list[Number]
    q3: list[Number]
    high: list[Number]
    low_who: list[int | None] = Field(description="The rank that is lowest; null where nobody has a value.")
    high_who: list[int | None]
    count: list[int] = Field(description="How many ranks have a value.")
    bad: list[int] = Field(description="How many values were not finite.")
    outliers: list[int] = Field(description="The ranks that stand out, the farthest first; at most four.")


class Curves(Shape):
    """The curves of one rank, of several, or a summary of them."""

    series: dict[str, Curve] | None = None
    ranks: dict[str, dict[str, Curve]] | None = None
    summary: dict[str, Band] | None = None
    read: int | None = Field(default=None, description="How many ranks the summary read, of how many (`of`).")
    of: int | None = None


class RankSide(Shape):
    """A rank beside the others."""

    rank: int
    host: str | None
    pid: int | None
    attempt: int
    life: State | None
    status: Status
    steps: int
    last_step: int
    loss: Number | None
    seconds: Number | None = Field(description="The time of a step, on average.")
    overhead: Number | None
    exit: Exit
    ended: str | None
    findings: Counted


class Attempt(Shape):
    """A launch of a run."""

    number: int
    first: int = Field(description="The step with which it begins.")
    started: str
    reason: str | None


class Ranks(Shape):
    """A part of the list of ranks."""

    ranks: list[RankSide]
    total: int
    limit: int
    offset: int
    attempts: list[Attempt]


class HeatMap(Shape):
    """Layers over steps: a row for each name, a column for each step; "NaN" where nothing was read, "Infinity" where
    the value was not finite."""

    kind: str
    column: str
    names: list[str]
    steps: list[int]
    values: list[list[Number]]


# -- findings and events -----------------------------------------------------------------------------------------------


class Place(Shape):
    """Where a fault lies, as far as it is known."""

    module: str | None
    parameter: str | None
    op: str | None
    phase: str | None
    file: str | None
    line: int | None
    code: str | None


class About(BaseModel):
    """What a person should know about a kind of finding."""

    model_config = ConfigDict(populate_by_name=True)

    title: str
    why: str
    attempt: Annotated[str, Field(alias="try")]


class FindingShape(Shape):
    """One fault of the run."""

    id: str
    severity: Literal["info", "warning", "critical"]
    step: int
    last_step: int
    count: int
    rank: int
    where: Place
    message: str
    evidence: dict[str, Any]
    recommendations: list[str]
    page: About | None


class Findings(Shape):
    """A part of the findings, in the order in which they should be read."""

    findings: list[FindingShape]
    total: int
    limit: int
    offset: int


class Event(Shape):
    """An entry of the run's log."""

    id: int
    timestamp: str
    event_type: str
    message: str
    level: str
    rank: int
    data: dict[str, Any]


class Events(Shape):
    """Events, oldest first; `next` is what `after` should be to go on."""

    events: list[Event]
    next: int


class Report(BaseModel):
    """The report of a run."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    schema_: Annotated[int, Field(alias="schema")]
    version: str
    run: dict[str, Any]
    findings: list[dict[str, Any]]
    summary: dict[str, Any]
    events: list[Any]
    memory: list[Any]
    performance: dict[str, Any]


class Comparison(Shape):
    """Where two runs part; null where they do not."""

    parted: dict[str, Any] | None


# -- requests ----------------------------------------------------------------------------------------------------------


class Wish(BaseModel):
    """Something that is asked of a live run."""

    model_config = ConfigDict(extra="forbid")

    kind: Kind
    value: StrictStr | StrictFloat | None = Field(
        default=None,
        description="For `level`: basic, advanced or extreme. For `budget`: a share above 0 and at most 1. "
        "For `trace`: how many steps, 1 to 100. Else nothing.",
    )


class Request(Shape):
    """A request and what became of it."""

    id: int
    kind: str
    value: Any
    created: str | None
    taken: str | None = Field(description="When the training process took it up; null until then.")
    answer: Any


class Asked(Shape):
    """A request that was put down."""

    request: Request


class Requests(Shape):
    """Requests to a run, oldest first."""

    requests: list[Request]


# -- explanations ------------------------------------------------------------------------------------------------------


class Explained(Shape):
    """The page of a kind of finding."""

    id: str
    title: str
    group: str
    markdown: str


class Catalogue(Shape):
    """All kinds of findings."""

    findings: list[Explained]


# -- the seed's four ---------------------------------------------------------------------------------------------------


class DebuggerSummary(Shape):
    """What one debugger counted."""

    total_anomalies: int
    debug_history_length: int


class TrainingDebuggerSummary(DebuggerSummary):
    """What the watch of the training counted."""

    total_steps: int
    anomaly_rate: Number
    gradient_explosion_rate: Number


class DebugSummary(Shape):
    """The counters of a run since they were last cleared; `run` is null where there is no run yet."""

    run: str | None
    training_debugger: TrainingDebuggerSummary
    diffusion_debugger: DebuggerSummary
    general_debugger: DebuggerSummary


class RunSummary(TrainingSummary):
    """The counters of a run's training since they were last cleared."""

    run: str | None


class LevelAsked(Shape):
    """The run whose level was asked to change."""

    run: str
    level: Literal["basic", "advanced", "extreme"]
    request: Request


class Cleared(Shape):
    """The run whose counters start again; null where there is none."""

    run: str | None
    request: Request | None
