"""`rank-nonfinite`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.ranks.facts import LISTED, amount, are, blamed, by_rank, capital, count, mapping, short, who
from seismograd.records import Finding, Reading, Severity, Where

_SAMPLES = 8
_SPOKEN = {
    "input": "in the input of the batch",
    "forward": "in the forward pass",
    "loss": "in the loss",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer's step before",
}


@dataclass(frozen=True)
class RankNonfinite:
    """Values that are not finite came from one rank, and the all-reduce gave them to all the others.

    Why it matters
    --------------
    A mean with one NaN in it is NaN. One bad sample on one of a thousand ranks ruins the gradients of all of them in
    the same step, and at the next every rank's loss is NaN: nothing shows any more where it began, and the batch it
    began with is on a rank whose log nobody reads.

    How it is judged
    ----------------
    At the first step at which any rank has values that are not finite: a rank went bad by itself if its own loss or
    input is not finite, or if a second run of its step found the place. The others have only got the gradient. Told if
    the ranks that went bad by themselves are at most `share` of all that told of the step. If more did, or all, the
    fault is the run's and no rank's. Steps that a `GradScaler` skipped for gradients alone are not told of.

    What to try
    -----------
    The finding with the line (`nonfinite-loss` and its like, of that rank) says what made it. Look at the samples that
    this one names, on that rank. Until it is mended, skip the step on all ranks: after the all-reduce the norm is the
    same everywhere.

    An example
    ----------

        loss.backward()                                         # NaN on rank 3: all ranks have NaN gradients now
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):                                # the same on all ranks: they skip together
            optimizer.step()
    """

    id: ClassVar[str] = "rank-nonfinite"
    needs: ClassVar[tuple[str, ...]] = ("facts/ranks",)
    follows: ClassVar[tuple[str, ...]] = (
        "nonfinite-input",
        "nonfinite-parameter",
        "nonfinite-activation",
        "nonfinite-loss",
        "nonfinite-gradient",
    )

    share: float = 0.5

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector", "_finding", "_judged", "_step")

    def __init__(self, detector: RankNonfinite) -> None:
        self._detector = detector
        self._step = -1
        """The first step of the present trouble; -1 while all is well."""
        self._judged = False
        self._finding: Finding | None = None

    def check(self, reading: Reading) -> Finding | None:
        facts = reading.facts["ranks"]
        broken = {rank: each for rank, each in by_rank(facts.get("broken")).items() if isinstance(each, Mapping)}
        if not broken:
            if reading.step > self._step:
                self._step, self._judged, self._finding = -1, False, None
            return None
        if self._step < 0:
            self._step = reading.step
        same = reading.step == self._step  # the origin may be told later, of the same step
        if same or not self._judged:
            finding = self._look(reading, facts, broken)
            if finding is not None and (self._finding is None or finding.rank == self._finding.rank):
                self._finding, self._judged = finding, True
                return finding
        if self._finding is None:
            return None
        return blamed(
            self._detector,
            reading,
            Severity.CRITICAL,
            self._finding.message,
            self._finding.evidence,
            advice=self._finding.recommendations,
            rank=self._finding.rank,
            where=self._finding.where,
            step=self._finding.step,
        )

    def _look(
        self, reading: Reading, facts: Mapping[str, Any], broken: Mapping[int, Mapping[str, Any]]
    ) -> Finding | None:
        own = [rank for rank, each in broken.items() if _by_itself(each)]
        counts = mapping(facts, "broke")
        alone = max(len(own), count(counts.get("own")))
        world = max(count(facts.get("world"), 2), len(broken))
        told = min(world, max(count(facts.get("told"), world), len(broken)))
        if alone:
            self._judged = True  # what comes later was spread, or is everyone's
        if not own or alone >= told or alone > self._detector.share * told:
            return None
        return self._found(reading, facts, broken, own, world)

    def _found(
        self,
        reading: Reading,
        facts: Mapping[str, Any],
        broken: Mapping[int, Mapping[str, Any]],
        own: Sequence[int],
        world: int,
    ) -> Finding:
        rank = min(own, key=lambda each: (not _origin(broken[each]), each))
        entry, origin = broken[rank], _origin(broken[rank])
        total = max(len(own), count(mapping(facts, "broke").get("own")))
        passed = [other for other, each in broken.items() if other not in own and each.get("gradient_bad")]
        spread = max(len(passed), count(mapping(facts, "broke").get("ranks")) - total)
        message = f"{capital(who(own, total))} went bad first, at step {reading.step:,}: {_how(entry, origin, own)}"
        if passed:
            others = f"all {world:,} ranks" if spread + total >= world > 2 else who(passed, spread)
            if len(broken) >= LISTED and spread == len(passed):  # the list is cut, and no number told
                others = f"{spread:,} others at least"
            message += f"; the all-reduce of the gradients then gave it to {others}"
        else:
            message += "; the gradients of the other ranks are still finite"
        message += "."
        place, samples = _place(origin), _samples(entry, origin)
        if origin:
            message += f" It began {place}."
        if samples:
            message += f" In its batch {_written(samples)} {'is' if len(samples) == 1 else 'are'} to blame."
        evidence: dict[str, Any] = {
            "culprits": list(own[:LISTED]),
            "world": world,
            "spread": spread,
            "limit": "finite",
            "loss": entry["loss"] if isinstance(entry.get("loss"), int | float | str) else "unknown",
        }
        if samples:
            evidence["samples"] = samples[:_SAMPLES]
        capture = entry.get("capture") or (origin or {}).get("capture")
        if capture:
            evidence["capture"] = short(capture)
        if origin:
            evidence |= {"origin": str(origin.get("phase") or "unknown"), "revision": 1}
            if origin.get("note"):
                evidence["note"] = short(origin["note"])
            if origin.get("sure") is False:
                evidence["sure"] = False
        what = f"{_written(samples)} of the batch" if samples else "the batch"
        advice = [f"Look at {what} that rank {rank} had at step {reading.step:,}."]
        if capture:
            advice[0] = f"{advice[0][:-1]}: it is saved in `{short(capture)}`."
        if entry.get("input_bad"):
            advice.append("The input itself is not finite: drop such samples where they are read, on every rank.")
        advice += [
            "Until it is mended, skip the step on all ranks together: after the all-reduce the norm of the gradients is"
            " the same everywhere, `if torch.isfinite(norm): optimizer.step()`.",
            f"Go back to a checkpoint of before step {reading.step:,}, if the optimizer has stepped since.",
        ]
        return blamed(
            self._detector,
            reading,
            Severity.CRITICAL,
            message,
            evidence,
            advice=advice,
            rank=rank,
            where=_where(origin),
        )


def _origin(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where it was made on this rank, if that is known."""
    origin = mapping(entry, "origin")
    return origin if origin.get("phase") else {}


def _by_itself(entry: Mapping[str, Any]) -> bool:
    """Whether this rank had it before anything was averaged."""
    if entry.get("loss_bad") or entry.get("input_bad"):
        return True
    origin = _origin(entry)
    return bool(origin) and origin.get("phase") != "optimizer" and not entry.get("skipped")


def _how(entry: Mapping[str, Any], origin: Mapping[str, Any], own: Sequence[int]) -> str:
    many = are(own, "its", "their")
    if entry.get("input_bad"):
        return f"{many} input was not finite while that of the others was"
    if entry.get("loss_bad"):
        loss = entry.get("loss")
        named = loss if isinstance(loss, str) else None
        value = amount(loss)
        text = f"was {short(named)}" if named else "was not finite" if value is None else f"was {value:.3g}"
        return f"{many} loss {text} while those of the others were finite"
    return (
        f"{many} loss was finite, and {many} own gradient was not" if origin else f"{many} own gradient was not finite"
    )


def _place(origin: Mapping[str, Any]) -> str:
    text = _SPOKEN.get(str(origin.get("phase")), "somewhere")
    op = str(origin.get("op") or "").removeprefix("aten.")
    if op:
        text += f", with `{op}`" + (f" in `{short(origin['module'])}`" if origin.get("module") else "")
    elif origin.get("module"):
        text += f", in `{short(origin['module'])}`"
    if origin.get("file"):
        line = origin.get("line")
        text += f", at {short(origin['file'])}" + (f":{line}" if isinstance(line, int) else "")
    return text + (" (unsure)" if origin.get("sure") is False else "")


def _samples(entry: Mapping[str, Any], origin: Mapping[str, Any]) -> list[int]:
    told = origin.get("samples") or entry.get("samples")
    return [each for each in told if isinstance(each, int)] if isinstance(told, list | tuple) else []


def _written(samples: Sequence[int]) -> str:
    if len(samples) == 1:
        return f"sample {samples[0]}"
    shown = [str(each) for each in samples[:3]]
    return f"samples {', '.join(shown)}" + (f" and {len(samples) - 3:,} more" if len(samples) > 3 else "")


def _where(origin: Mapping[str, Any]) -> Where:
    if not origin:
        return Where()
    line, texts = origin.get("line"), {}
    for name in ("module", "op", "phase", "file", "code"):
        if isinstance(origin.get(name), str):
            texts[name] = short(origin[name])
    return Where(**texts, line=line if isinstance(line, int) else None)
