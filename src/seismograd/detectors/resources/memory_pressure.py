"""`memory-pressure`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from seismograd.amounts import size
from seismograd.detectors.running import median
from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity, Where

_LIMITS = {"machine": "the machine's memory", "cgroup": "the container's limit", "ulimit": "the limit of `ulimit -v`"}
_KEPT = ("parameters", "gradients", "optimizer", "activations", "buffers", "other")
_PHASES = {
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer's step",
    "data": "while data was loaded",
    "loop": "in the loop's own code",
}


@dataclass(frozen=True)
class MemoryPressure:
    """Memory is used up, or nearly: the next steps may not fit.

    Why it matters
    --------------
    Torch raises an error where an accelerator has no memory left. On the host the kernel ends the process without a
    word, and in a container at a limit that `free` does not show. What was not saved is lost.

    How it is judged
    ----------------
    What is left is read once a second: of the machine's available memory and its swap, of the cgroup's limit, of
    `ulimit -v`, whichever is least. Page cache that can be dropped counts as free. A warning where less than `low` of
    the limit is left at `looks` looks in a row. Critical where less is left than a step takes for a moment (the most
    that a phase of a sampled step stood above its end), or where it has grown at `growths` looks or more and
    at this rate is gone within `soon` seconds. Where this process holds less than `share` of what is used, others fill
    the memory: that is told as information. On CUDA a warning where the allocator had to give back everything it had
    kept ready `retries` times or more within the last looks: it then waits for the device each time. An error that says
    that memory is out is critical, whatever was read before. Where the loop caught it and went on, as those do that try
    how large a batch may be, it is information, and a warning from the `caught`-th time on.

    What to try
    -----------
    A smaller batch with more steps of accumulation, `torch.utils.checkpoint` around the blocks, autocast to bfloat16;
    for an error the finding says how large a batch fits with each, measured on a few samples. Fewer loader workers:
    each holds its own copy of what the dataset changes. If it grows from step to step, see `memory-leak` and
    `growing-graph`.

    An example
    ----------

        loader = DataLoader(data, batch_size=4096)   # the activations of 4,096 samples do not fit
    """

    id: ClassVar[str] = "memory-pressure"
    needs: ClassVar[tuple[str, ...]] = ("facts/exhaustion|facts/pressure|memory/after_forward",)
    follows: ClassVar[tuple[str, ...]] = ("memory-leak", "growing-graph")

    low: float = 0.04
    looks: int = 3
    growths: int = 8
    soon: float = 60.0
    share: float = 0.5
    retries: int = 3
    caught: int = 3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_caught", "_detector", "_low", "_retries", "_swing", "_used")

    def __init__(self, detector: MemoryPressure) -> None:
        self._detector = detector
        self._caught = 0
        self._low = 0  # looks in a row at which little was left
        self._swing = 0.0  # what a step takes for a moment
        self._used: deque[tuple[float, float]] = deque(maxlen=24)  # seconds and bytes, of the last looks
        self._retries: deque[int] = deque(maxlen=8)

    def check(self, reading: Reading) -> Finding | None:
        if "exhaustion" in reading.facts:
            facts = reading.facts["exhaustion"]
            self._caught += facts["caught"]
            often = self._caught >= self._detector.caught
            severity = Severity.CRITICAL if not facts["caught"] else Severity.WARNING if often else Severity.INFO
            return _Exhausted(self._detector, reading, facts).finding(severity)
        if "pressure" in reading.facts:
            return self._pressed(reading, reading.facts["pressure"])
        self._note(reading.scalars)
        return None

    def _note(self, scalars: Mapping[str, float]) -> None:
        end = scalars.get("memory/rss")
        after = [scalars[name] for name in scalars if name.startswith("memory/after_")]
        if end is not None and after and "memory/allocated" not in scalars:
            self._swing = max(0.9 * self._swing, max(after) - end)

    def _pressed(self, reading: Reading, facts: Mapping[str, Any]) -> Finding | None:
        limits = self._detector
        self._used.append((facts["seconds"], facts["used"]))
        self._low = self._low + 1 if facts["left"] < limits.low * facts["limit"] else 0
        rate = self._rate()
        lasts = facts["left"] / rate if rate > 0 else None
        ours = facts["own"] >= limits.share * facts["used"] or facts["limit_of"] == "ulimit"
        does_not_fit = self._low >= 1 and facts["left"] < self._swing
        runs_out = lasts is not None and lasts < limits.soon and self._low >= 1
        if does_not_fit or runs_out or self._low >= limits.looks:
            worst = Severity.CRITICAL if does_not_fit or runs_out else Severity.WARNING
            return self._near(reading, facts, worst if ours else Severity.INFO, lasts)
        return self._on_device(reading, facts["device"])

    def _rate(self) -> float:
        """Bytes per second by which it grows; 0 where it does not do so all the time."""
        used = list(self._used)
        if len(used) < self._detector.growths:
            return 0.0
        third = len(used) // 3
        first, last = used[:third], used[-third:]
        rises = sum(b[1] > a[1] for a, b in pairwise(used))
        if rises < 0.75 * (len(used) - 1):
            return 0.0
        span = median([each[0] for each in last]) - median([each[0] for each in first])
        return (median([each[1] for each in last]) - median([each[1] for each in first])) / span if span > 0 else 0.0

    def _near(self, reading: Reading, facts: Mapping[str, Any], severity: Severity, lasts: float | None) -> Finding:
        what = _LIMITS.get(facts["limit_of"], facts["limit_of"])
        message = f"{size(facts['left'])} of {what} is left ({size(facts['used'])} of {size(facts['limit'])} are used)"
        if severity is Severity.INFO:
            message += f": this process holds {size(facts['own'])} of it, others fill the memory."
        elif lasts is not None and severity is Severity.CRITICAL:
            message += f", and at the present rate that is gone in {lasts:.0f} s: the kernel then ends the process."
        elif severity is Severity.CRITICAL:
            message += f", and a step takes {size(self._swing)} for a moment: the kernel may end the process."
        else:
            message += f", {size(facts['own'])} by this process."
        evidence = {
            "left": facts["left"],
            "limit": self._detector.low,
            "memory_limit": facts["limit"],
            "limit_of": facts["limit_of"],
            "used": facts["used"],
            "own": facts["own"],
            "step_takes": int(self._swing),
            "out_of_memory": False,
        }
        advice = (
            "Save a checkpoint now, and go on with a smaller batch, fewer loader workers, or a higher limit."
            if severity is Severity.CRITICAL
            else "End what else runs there, or give this run a limit of its own."
            if severity is Severity.INFO
            else "Leave some room: a smaller batch, fewer loader workers, or a higher limit."
        )
        return found(self._detector, reading, severity, message, evidence, advice=(advice,))

    def _on_device(self, reading: Reading, device: Mapping[str, Any] | None) -> Finding | None:
        if device is None:
            return None
        self._retries.append(device["retries"])
        grown = self._retries[-1] - self._retries[0]
        if grown < self._detector.retries:
            return None
        message = (
            f"The accelerator is full: {grown} times in the last {len(self._retries)} looks the allocator had to give "
            f"back all that it kept ready ({size(device['peak'])} of {size(device['limit'])} at the highest). Each "
            "time the run waits, and the next may fail."
        )
        evidence = {
            "retries": grown,
            "limit": self._detector.retries,
            "peak": device["peak"],
            "memory_limit": device["limit"],
            "out_of_memory": False,
        }
        advice = (
            "A smaller batch, checkpointed blocks or autocast to bfloat16.",
            "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` where sizes vary from step to step.",
        )
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice)


class _Exhausted:
    """Says what an error that memory is out means."""

    def __init__(self, detector: MemoryPressure, reading: Reading, facts: Mapping[str, Any]) -> None:
        self._detector, self._reading, self._facts = detector, reading, facts

    def finding(self, severity: Severity) -> Finding:
        facts = self._facts
        line = facts["line"] or {}
        fit = facts["fit"] or {}
        evidence = {
            "out_of_memory": True,
            "asked": facts["asked"] or 0,
            "limit": facts["limit"],
            "limit_of": facts["limit_of"],
            "left": facts["left"],
            **{name: facts[name] for name in _KEPT},
            "caught": facts["caught"],
            "error": facts["error"],
            **{name: fit[name] for name in ("batch", "each", "activations", "largest") if fit},
            **{f"if_{name}": fit[name] for name in ("checkpointed", "halved") if fit.get(name) is not None},
            **{name: fit[name] for name in ("largest_checkpointed", "largest_halved") if fit.get(name) is not None},
            **({"by_module": _listed(fit["by_module"])} if fit and fit["by_module"] else {}),
            **({"history": facts["history"]} if facts["history"] else {}),
        }
        if fit:
            evidence["activations_of_a_step"] = evidence.pop("activations")
            evidence["activations"] = facts["activations"]
        return found(
            self._detector,
            self._reading,
            severity,
            self._message(),
            evidence,
            where=Where(
                module=facts["module"],
                phase=facts["phase"],
                file=line.get("file"),
                line=line.get("line"),
                code=line.get("code"),
            ),
            advice=tuple(self._advice()),
        )

    def _message(self) -> str:
        facts = self._facts
        asked = f", {size(facts['asked'])} were asked for" if facts["asked"] else ""
        held = [(name, facts[name]) for name in _KEPT if facts[name]]
        kept = ", ".join(f"{_NAMES[name]} {size(amount)}" for name, amount in sorted(held, key=lambda each: -each[1]))
        where = _PHASES.get(facts["phase"], "")
        what = _LIMITS.get(facts["limit_of"], f"the memory of {facts['limit_of']}")
        if not facts["asked"] or facts["left"] < facts["asked"]:  # what was unwound since is free again
            asked += f", and {size(facts['left'])} of {what} was left"
        message = f"Out of memory {where}{asked}. Alive were {kept}."
        if facts["caught"]:
            message += " The loop caught the error and went on."
        return message

    def _advice(self) -> list[str]:
        facts, fit = self._facts, self._facts["fit"]
        advice: list[str] = []
        if fit and fit["largest"] < fit["batch"]:
            advice.append(
                f"A batch of {fit['largest']} would fit instead of {fit['batch']}: each sample takes "
                f"{size(fit['each'])} (measured on a few of them). Accumulate {-(-fit['batch'] // fit['largest'])} of "
                "them for the same step."
                if fit["largest"]
                else f"Not even one sample fits: each takes {size(fit['each'])}."
            )
        elif fit:
            advice.append(
                f"The model's own step needs about {size(fit['activations'])} at a batch of {fit['batch']}, which would"
                f" fit: what asked for more is `{(facts['line'] or {}).get('code') or facts['phase']}`."
            )
        if fit and fit["checkpointed"] is not None:
            advice.append(
                f"`torch.utils.checkpoint` around each block of `{fit['blocks']}` keeps {size(fit['checkpointed'])}"
                f" instead of {size(fit['activations'])}: a batch of {fit['largest_checkpointed']} would fit."
            )
        if fit and fit["halved"] is not None and fit["halved"] < 0.9 * fit["activations"]:
            advice.append(
                f"Autocast to bfloat16 keeps {size(fit['halved'])} instead of {size(fit['activations'])}: a batch of "
                f"{fit['largest_halved']} would fit."
            )
        if facts["history"]:
            advice.append(f"The allocator's history is in {facts['history']}: open it at pytorch.org/memory_viz.")
        return advice or ["Look at the shape that this line makes: a smaller batch, or less kept at a time."]


_NAMES = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "the optimizer's state",
    "activations": "activations",
    "buffers": "buffers",
    "other": "everything else",
}


def _listed(by_module: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size(amount)}" for name, amount in by_module.items())
