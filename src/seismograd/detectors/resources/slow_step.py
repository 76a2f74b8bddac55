"""`slow-step`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class SlowStep:
    """Some steps take far longer than their peers, and the run loses a good part of its time in them.

    Why it matters
    --------------
    A step that now and then takes ten times as long as the others is seldom meant: Python's garbage collector walks
    over everything, `torch.compile` compiles again because a shape has changed, a loader starts its workers anew.

    How it is judged
    ----------------
    A step is slow if it takes three times as long as the median of the last 64 and lies three of their spreads above it
    (in logarithms), or takes ten times as long, and loses 5 ms. The first eight do not count, nor do evaluation,
    checkpoints and logging between steps.
    What it lost is ascribed to what was different in it. Told of, from step `steps` on, is a cause that took `share`
    of the run's time so far or more, `seconds` or more, in `times` steps or more.

    - Garbage collection that takes a fifth of a step, in a tenth of all steps or more, and recompilations of code that
      was compiled before, from `recompiles` on, are warnings.
    - A batch that is larger than usual, a wait for data (at the start of a pass, or in the middle), and time that
      nothing explains though the CPU was at work, are worth no more than a note. So are evaluation, checkpoints and
      logging, and only if they take `outrageous` of the time or more.
    - Where the thread did not run, because other programs had the CPU, nothing is said.

    What to try
    -----------
    As the cause is: leave `gc.collect()` out of the loop, `gc.freeze()` before it; `torch.compile(dynamic=True)`, or
    batches padded to a few lengths; batches of like lengths (bucketing); `persistent_workers=True`.

    An example
    ----------

        for step, (x, y) in enumerate(loader):
            train_step(x, y)
            gc.collect()            # walks over all objects of the process: 80 ms, at each step
    """

    id: ClassVar[str] = "slow-step"
    needs: ClassVar[tuple[str, ...]] = ("facts/pace",)
    follows: ClassVar[tuple[str, ...]] = ("data-starvation", "cpu-pressure", "memory-leak", "growing-graph")

    share: float = 0.1
    seconds: float = 0.2
    steps: int = 16
    times: int = 3
    recompiles: int = 4
    outrageous: float = 0.5

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: SlowStep) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        facts = reading.facts["pace"]
        finding = self._recompiles(reading, facts)
        if finding is not None or facts["steps"] < self._detector.steps:
            return finding
        looks = (self._collections, self._steps, self._between)
        return next((one for look in looks if (one := look(reading, facts)) is not None), None)

    def _matters(self, seconds: float, facts: Mapping[str, Any]) -> bool:
        limits = self._detector
        return bool(seconds >= limits.seconds and seconds >= limits.share * facts["seconds"])

    def _recompiles(self, reading: Reading, facts: Mapping[str, Any]) -> Finding | None:
        made = facts["recompiles"]
        if made is None or made["count"] < self._detector.recompiles or not self._matters(made["seconds"], facts):
            return None
        message = (
            f"`torch.compile` has compiled the same code again {made['count']} times, which took"
            f" {made['seconds']:.1f} s, {_part(made['seconds'], facts)} of the run's time so far"
        )
        message += f": {made['reason']}." if made["reason"] else "."
        sizes = "size mismatch" in made["reason"] or "stride" in made["reason"]
        advice = [
            "`torch.compile(model, dynamic=True)`, or batches padded to a few sizes (`drop_last=True` for the last)."
            if sizes
            else "What the reason names should stay the same: pass it as a tensor, or keep it out of compiled code.",
            "After 8 recompilations of a function torch gives up and runs it uncompiled"
            " (`torch._dynamo.config.recompile_limit`). `TORCH_LOGS=recompiles` lists them all.",
        ]
        more = {"recompiles": made["count"], "reason": made["reason"]}
        return self._found(
            reading,
            facts,
            "recompile",
            made["seconds"],
            message=message,
            advice=advice,
            where=Where(phase="forward", file=made["file"], line=made["line"] if made["file"] else None),
            **more,
        )

    def _collections(self, reading: Reading, facts: Mapping[str, Any]) -> Finding | None:
        often = max(self._detector.times, facts["steps"] / 10)
        if facts["gc_steps"] < often or not self._matters(facts["gc"], facts):
            return None
        line = facts["gc_line"] or {}
        asked = "gc.collect" in (line.get("code") or "")
        message = (
            f"Python's garbage collection took {facts['gc']:.1f} s, {_part(facts['gc'], facts)} of the run's time, in"
            f" {facts['gc_steps']} of {facts['steps']} steps"
        )
        message += ": the loop calls `gc.collect()`." if asked else "."
        advice = ["Leave `gc.collect()` out of the loop, or call it once an epoch."] if asked else []
        advice.append(
            "`gc.collect(); gc.freeze()` before the loop takes what is there already out of every later collection;"
            " `gc.set_threshold(50_000)` makes them rarer."
        )
        if not asked:
            advice.append("Keep what grows from step to step in tensors or arrays, not in lists of Python objects.")
        where = Where(file=line.get("file"), line=line.get("line"), code=line.get("code"))
        return self._found(reading, facts, "gc", facts["gc"], message=message, advice=advice, where=where)

    def _steps(self, reading: Reading, facts: Mapping[str, Any]) -> Finding | None:
        limits = self._detector
        for cause, seconds in sorted(facts["lost"].items(), key=lambda item: -item[1]):
            count = facts["counts"][cause]
            if cause not in _CAUSES or count < limits.times or not self._matters(seconds, facts):
                continue
            what, advice = _CAUSES[cause]
            usual, large = facts["sizes"]
            message = (
                f"{count} of {facts['steps']} steps took far longer than the usual {1000 * facts['typical']:.1f} ms, up"
                f" to {1000 * facts['worst']['seconds']:.0f} ms, and lost {_part(seconds, facts)} of the run's time:"
                f" {what.format(usual=usual, large=large, phase=facts['phase'])}."
            )
            return self._found(reading, facts, cause, seconds, message=message, advice=advice, severity=Severity.INFO)
        return None

    def _between(self, reading: Reading, facts: Mapping[str, Any]) -> Finding | None:
        for phase, seconds in facts["between"].items():
            if seconds >= self._detector.seconds and seconds >= self._detector.outrageous * facts["seconds"]:
                message = f"{_BETWEEN[phase][0]} {_part(seconds, facts)} of the run's time."
                advice = [_BETWEEN[phase][1]]
                return self._found(
                    reading, facts, phase, seconds, message=message, advice=advice, severity=Severity.INFO
                )
        return None

    def _found(
        self,
        reading: Reading,
        facts: Mapping[str, Any],
        cause: str,
        seconds: float,
        *,
        message: str,
        advice: list[str],
        severity: Severity = Severity.WARNING,
        where: Where | None = None,
        **more: Any,
    ) -> Finding:
        evidence = {
            "cause": cause,
            "seconds": seconds,
            "share": seconds / facts["seconds"],
            "limit": self._detector.outrageous if cause in _BETWEEN else self._detector.share,
            "typical_seconds": facts["typical"],
            "steps": facts["steps"],
            **more,
        }
        return found(self._detector, reading, severity, message, evidence, advice=advice, where=where)


def _part(seconds: float, facts: Mapping[str, Any]) -> str:
    return f"{seconds / facts['seconds']:.0%}"


_CAUSES: dict[str, tuple[str, list[str]]] = {
    "size": (
        "their batches were larger, up to {large} elements against {usual:.0f}",
        ["Put samples of like lengths into a batch (bucketing), or cut the few that are far longer than the others."],
    ),
    "pass": (
        "they waited for the first batch of a new pass over the data",
        ["`persistent_workers=True` keeps the workers from epoch to epoch, and what they have opened."],
    ),
    "data": (
        "they waited for data",
        ["`num_workers` and `prefetch_factor` even out samples that take long; so does a faster disk."],
    ),
    "unknown": (
        "what was different in them is not known, most of it was in `{phase}`, and the CPU was at work",
        ['`with sg.PyTorchDebugger().profiling(output_file="trace.json"):` around slow steps shows what they do.'],
    ),
}
"""What else slow steps may have lost their time by; `stalled` is the machine's doing, and nobody is told."""

_BETWEEN = {
    "checkpoint": ("Checkpoints (`torch.save`) take", "Save less often, or only the newest and the best."),
    "evaluation": ("Evaluation takes", "Evaluate less often, or on a part of the data."),
    "logging": ("Logging takes", "Log every N-th step, and histograms less often still."),
}
