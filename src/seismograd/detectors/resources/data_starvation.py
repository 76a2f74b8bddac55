"""`data-starvation`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.amounts import size
from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class DataStarvation:
    """The step spends most of its time waiting for the next batch.

    Why it matters
    --------------
    While the loop waits for data, nothing is trained: a faster model, or a faster machine for it, would change nothing.
    Half of the time spent waiting is a run that takes twice as long as it needs to.

    How it is judged
    ----------------
    Over the last `steps` steps, without the first batches of each pass over a loader, which wait for workers to start:
    the median share of the wait in the step is `share` or more, and the median wait `seconds` or more; where gradients
    are accumulated, both are those of one batch. Evaluation, checkpoints and logging between steps do not count, nor
    does the time in which other programs had the processors. On an accelerator a wait counts only if the device had
    nothing left to do. Data that is made in the loop itself, without a `DataLoader`, is not seen.

    What the wait is for (reading, transform, collate, copy) is known from samples of the stack, for a few steps. Then
    copies of the loader make a few batches in processes of their own, where that is safe: not for iterable datasets,
    nor for those that hold open files, connections, locks or shared memory, or write. If they make the same batch
    `warm` times as fast when asked again, or the code speaks of a cache, the first pass over the data is not judged.
    The loader has to be too slow in that trial as well; where there was none, slow workers are only worth a note.

    What to try
    -----------
    More workers (`num_workers`), as many as the trial says are worth it; keeping what has been read in memory; doing
    what is the same for every epoch once, before training; transforming whole batches instead of samples.

    An example
    ----------

        class Images(Dataset):
            def __getitem__(self, index):
                image = Image.open(self.paths[index])      # 8 ms for each of 32 samples, while nothing trains
                return self.transform(image), self.labels[index]

        loader = DataLoader(Images(), batch_size=32)       # num_workers=4 reads ahead
    """

    id: ClassVar[str] = "data-starvation"
    needs: ClassVar[tuple[str, ...]] = ("facts/loading",)
    follows: ClassVar[tuple[str, ...]] = ("cpu-pressure",)

    share: float = 0.5
    seconds: float = 0.01
    steps: int = 16
    warm: float = 3.0

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: DataStarvation) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        limits, facts = self._detector, reading.facts["loading"]
        if facts["steps"] < limits.steps or facts["share"] < limits.share or facts["wait"] < limits.seconds:
            return None
        if facts["passes"] < 2 and self._warms_up(facts):
            return None
        if not self._is_slow_by_itself(facts):
            return None
        stage, part = next(iter(facts["stages"].items()), (None, 0.0))
        message = (
            f"The step waits for its data: {_milliseconds(facts['wait'])} of {_milliseconds(facts['step'])}"
            f" ({facts['share']:.0%}, the median of {facts['steps']} steps)"
        )
        if stage is not None:
            message += f", {_STAGES[stage]}" + (f" for {part:.0%} of that." if stage != "workers" else ".")
        else:
            message += "."
        line = facts["line"] or {}
        evidence = {
            "share": facts["share"],
            "limit": limits.share,
            "wait_seconds": facts["wait"],
            "step_seconds": facts["step"],
            "stage": stage or "unknown",
            "stage_share": part,
            "workers": facts["workers"],
            "cores": facts["cores"],
            **_speedup(facts),
        }
        if facts["refused"]:
            evidence["not_tried"] = facts["refused"]
        return found(
            limits,
            reading,
            Severity.INFO if facts["workers"] and facts["trial"] is None else Severity.WARNING,
            message,
            evidence,
            where=Where(phase="data", file=line.get("file"), line=line.get("line"), code=line.get("code")),
            advice=_advice(facts, stage, part),
        )

    def _is_slow_by_itself(self, facts: Mapping[str, Any]) -> bool:
        """Whether the loader would be too slow on a quiet machine, too: here others may have the processors."""
        trial, limits = facts["trial"], self._detector
        if trial is None or not trial["rounds"]:
            return True
        now, busy = trial["rounds"][0], facts["step"] - facts["wait"]
        wait = float(now["quiet"])
        if facts["workers"]:
            wait = wait / (facts["workers"] if trial["waits"] else min(facts["workers"], facts["cores"])) - busy
        return bool(wait >= limits.seconds and wait >= limits.share * (busy + wait))

    def _warms_up(self, facts: Mapping[str, Any]) -> bool:
        """Whether what is slow now may be fast in the next pass."""
        trial = facts["trial"]
        return bool(facts["caches"] if trial is None else trial["again"] >= self._detector.warm)


_STAGES = {
    "reading": "reading samples",
    "transform": "transforming samples",
    "sample": "making samples in `__getitem__`",
    "collate": "collating samples into a batch",
    "copy": "copying batches from the workers",
    "sampler": "choosing samples in the sampler",
    "workers": "while its workers work",
}


def _speedup(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the most workers that were tried would make of the step."""
    trial = facts["trial"]
    if trial is None or not trial["rounds"]:
        return {}
    now, most = trial["rounds"][0], trial["rounds"][-1]
    before = now["rate"] if facts["workers"] else 1.0 / facts["wait"]
    return {
        "tried_workers": most["workers"],
        "tried_batches": most["batches"],
        "speedup": most["rate"] / before,
        "step_then": _step_with(facts, most),
    }


def _step_with(facts: Mapping[str, Any], made: Mapping[str, Any]) -> float:
    """The length of a step beside so many workers: that of what is slower, and not less than the cores allow."""
    busy = facts["step"] - facts["wait"]
    threads = min(facts["threads"], facts["cores"])
    return float(max(busy, 1.0 / made["rate"], (busy * threads + made["cpu"]) / facts["cores"]))


def _advice(facts: Mapping[str, Any], stage: str | None, part: float) -> list[str]:
    workers, cores = facts["workers"], facts["cores"]
    advice = []
    tried = _speedup(facts)
    if tried:
        count, gain = tried["tried_workers"], tried["speedup"]
        figures = f"{gain:.1f}x as many batches a second, measured on {tried['tried_batches']} batches"
        if facts["step"] >= 1.2 * tried["step_then"] and count > workers:
            advice.append(
                f"`num_workers={count}` (now {workers}): {figures}. A step would take about"
                f" {_milliseconds(tried['step_then'])} instead of {_milliseconds(facts['step'])}."
            )
        elif count > workers:
            advice.append(
                f"More workers help little here: {count} of them make {figures}, and this process has"
                f" {cores} core{'s' if cores > 1 else ''}."
            )
        else:
            advice.append(
                f"More than {workers} workers were not worth a trial: they keep the {cores} cores busy as it is. Give"
                " them less to do."
            )
        if workers and facts["trial"]["rounds"][0]["rate"] * facts["step"] >= 1.5:
            advice.append(
                f"Undisturbed, the {workers} workers make enough batches: raise `prefetch_factor` (now"
                f" {facts['prefetch']}), and leave them cores (`torch.set_num_threads`, now {facts['threads']})."
            )
    elif facts["refused"]:
        advice.append(
            f"Try `num_workers={max(2, 2 * workers) if not workers else 2 * workers}` (now {workers})."
            f" That was not tried on a copy here: {facts['refused']}."
        )
    else:
        advice.append(f"Try more workers: `num_workers={max(2, 2 * workers)}` (now {workers}).")
    return advice + _for_stage(facts, stage, part)


def _for_stage(facts: Mapping[str, Any], stage: str | None, part: float) -> list[str]:
    if stage == "reading":
        whole = _whole_size(facts)
        known = f" (about {size(whole)} in all)" if whole else ""
        gain = f" without it, batches come up to {1 / max(1e-2, 1 - part):.0f}x as fast" if part < 0.99 else ""
        if whole is None or whole < 8e9:
            return [
                f"Keep what has been read in memory{known}, after the first pass over it:{gain or ' no more waits'}."
            ]
        return [
            f"Put the data{known} on a faster disk, in fewer and larger files, or in a form that needs no decoding."
        ]
    if stage == "transform":
        return ["Do what is the same in every epoch once, before training; do the rest on whole batches, in tensors."]
    if stage == "collate":
        return ["Let `__getitem__` return tensors or arrays of one shape, and make the batch with one `torch.stack`."]
    if stage == "copy":
        return ["Return tensors or arrays: Python objects are pickled, and copied through a pipe, one by one."]
    if stage == "workers":
        return ["Run a few steps with `num_workers=0`: then it can be seen which line they spend their time at."]
    return []


def _whole_size(facts: Mapping[str, Any]) -> float | None:
    trial, samples = facts["trial"], facts["samples"]
    if trial is None or not trial["rounds"] or not samples or not facts["batch"]:
        return None
    return float(trial["rounds"][0]["bytes"]) / facts["batch"] * samples or None


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 10 else f"{seconds:.0f} s"
