"""`InputGuard`: learns from the first batches what a model is given, then says what is unlike them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from seismograd.detectors.data.input_drift import InputDrift
from seismograd.guard.leaves import leaves
from seismograd.guard.usual import SCALES, Usual, describe
from seismograd.judge import ranked
from seismograd.records import Finding, Reading, Severity, Where, rank

_MOST_PARTS, _MOST_NAMES, _MOST_FINDINGS = 32, 256, 64
_LATELY = 20
_LONGEST = 64
"""The detector remembers so many batches."""


class InputGuard:
    """Learns from the first `batches` what batches are like, and finds those that are not: `input-drift`.

        guard = InputGuard(batches=32)
        for batch in guard(loader):
            ...
        print(guard.findings)

    Or `guard.check(batch)`, which returns what is wrong with this one. For each tensor of a batch, by its key: its
    dtype, the number of its dimensions and the sizes that never changed (the first may), NaN and infinite values, the
    range of labels, the share of zeros, the range of its values, and mean and deviation, of each channel as well where
    it has enough values. The last two are judged as the detector `input-drift` does in a run: `factor` times off, and
    a warning if `stays` batches of the last 20 are; what changes slowly is left alone.

    `state_dict()` is what was learned, as strict JSON: with it a service goes on where the training was.
    """

    def __init__(
        self,
        batches: int = 32,
        *,
        factor: float = 8.0,
        stays: int = 4,
        on_drift: Callable[[Finding], object] | None = None,
    ) -> None:
        if isinstance(batches, bool) or not isinstance(batches, int) or batches < 2:
            raise ValueError(f"batches is {batches!r}: it takes from how many batches is learned, 2 or more")
        if not factor > 1.0:
            raise ValueError(f"factor is {factor!r}: it takes how many times off counts, more than 1")
        if stays < 1:
            raise ValueError(f"stays is {stays!r}: it takes how many strange batches are a warning, 1 or more")
        self.batches, self.factor, self.stays, self.on_drift = batches, factor, stays, on_drift
        self._detector = InputDrift(batches=min(batches, _LONGEST), factor=factor, stays=stays)
        self.reset()

    def reset(self) -> None:
        """Forgets what was learned and found."""
        self.seen = 0
        """How many batches were checked."""
        self._usual: dict[str, Usual] = {}
        self._checkers: dict[str, Any] = {}
        self._scales: dict[str, deque[tuple[float, float, float]]] = {}
        self._lately: dict[tuple[str, str], deque[int]] = {}
        self._found: dict[tuple[str, str], Finding] = {}

    @property
    def learned(self) -> bool:
        """Whether it has seen enough batches to judge."""
        return self.seen >= self.batches

    @property
    def findings(self) -> list[Finding]:
        """What was found so far, the worst first; repeats are counted."""
        return ranked(self._found.values())

    def __call__(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of `loader`, each checked before it is handed on."""
        for batch in loader:
            self.check(batch)
            yield batch

    def __enter__(self) -> InputGuard:
        return self

    def __exit__(self, *_: object) -> None: ...

    def check(self, batch: Any) -> list[Finding]:
        """Learns from the batch, or says what about it is unlike those before. Waits for its device."""
        step, self.seen = self.seen, self.seen + 1
        learns = step < self.batches
        told: list[Finding] = []
        parts = {f"batch{path}": tensor for path, tensor in islice(leaves(batch), _MOST_PARTS)}
        with torch.no_grad():
            if not learns:
                told += self._keys(step, parts)
            for name, tensor in parts.items():
                told += self._look(step, name, tensor, learns)
        return told

    def _keys(self, step: int, parts: Mapping[str, Tensor]) -> list[Finding]:
        """Keys that were never there, and those that always were. Lists may have any length."""
        here, known = {_key(name) for name in parts}, {_key(name) for name in self._usual}
        told: list[Finding] = []
        for name in parts:
            if _key(name) not in known:
                told += self._tell(step, name, "new", "was in no batch before", {}, at_once=True)
        for name, usual in self._usual.items():
            if _key(name) not in here and usual.batches >= self.batches:
                told += self._tell(
                    step, name, "missing", "was in every batch, and is not in this one", {}, at_once=True
                )
        return told

    def _look(self, step: int, name: str, tensor: Tensor, learns: bool) -> list[Finding]:
        if name not in self._usual and len(self._usual) >= _MOST_NAMES:
            return []
        usual, seen = self._usual.setdefault(name, Usual()), describe(tensor)
        strange = {
            part: found for part, scale in seen.scales.items() if (found := self._judge(step, name + part, scale))
        }
        if "" in strange:  # then so are its channels, and the range
            strange = {"": strange[""]}
        told: list[Finding] = []
        for part, finding in strange.items():
            told += self._add((name + part, "scale"), replace(finding, last_step=step))
        if learns or not usual.batches:
            usual.learn(seen, self.batches // 2)
            return told
        for kind, text, evidence, at_once in usual.compare(seen, self.factor):
            if at_once or "" not in strange:
                told += self._tell(step, name, kind, text, evidence, at_once=at_once)
        return told

    def _judge(self, step: int, name: str, scale: tuple[float, float, float]) -> Finding | None:
        """What the detector finds, as it does in a run."""
        checker = self._checkers.get(name)
        if checker is None:
            if len(self._checkers) >= SCALES * _MOST_PARTS:
                return None
            checker = self._checkers[name] = self._detector.start()
            self._scales[name] = deque(maxlen=_LONGEST)
        facts = {"inputs": {name: dict(zip(("mean", "std", "filled"), scale, strict=True))}}
        finding: Finding | None = checker.check(Reading(step, rank=rank(), facts={"batches": facts}))
        if finding is None:
            self._scales[name].append(scale)
        return finding

    def _tell(
        self, step: int, name: str, kind: str, text: str, evidence: Mapping[str, Any], *, at_once: bool
    ) -> list[Finding]:
        """A warning at once, or if there are several lately; before that it is only mentioned."""
        lately = self._lately.setdefault((name, kind), deque(maxlen=max(self.stays, 1)))
        lately.append(step)
        stays = at_once or (len(lately) == self.stays and lately[0] > step - _LATELY)
        finding = Finding(
            InputDrift.id,
            Severity.WARNING if stays else Severity.INFO,
            step,
            f"`{name}` {text}.",
            rank(),
            Where(phase="input"),
            {"input": name, "kind": kind, **evidence, "batches": self.batches},
            (f"Look at where batch {step} comes from: a source that is not prepared as the others are.",),
        )
        return self._add((name, kind), finding)

    def _add(self, key: tuple[str, str], finding: Finding) -> list[Finding]:
        known = self._found.get(key)
        if known is None and len(self._found) >= _MOST_FINDINGS:
            return [finding]
        if known is not None:
            worse = finding.severity.weight > known.severity.weight
            finding = replace(
                finding if worse else known, step=known.step, count=known.count + 1, last_step=finding.last_step
            )
        self._found[key] = finding
        if self.on_drift is not None and (known is None or finding.severity is not known.severity):
            self.on_drift(finding)
        return [finding]

    def state_dict(self) -> dict[str, Any]:
        """What was learned, as strict JSON."""
        return {
            "version": 1,
            "batches": self.batches,
            "factor": self.factor,
            "stays": self.stays,
            "seen": self.seen,
            "usual": {name: usual.state_dict() for name, usual in self._usual.items()},
            "scales": {name: [list(scale) for scale in scales] for name, scales in self._scales.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what another guard has learned, with its limits; findings begin anew."""
        if state.get("version") != 1 or not {"batches", "seen", "usual", "scales"} <= set(state):
            raise ValueError(
                "the state is not one of InputGuard.state_dict(): it has no version 1, or parts are missing"
            )
        other = InputGuard(state["batches"], factor=state["factor"], stays=state["stays"])
        self.batches, self.factor, self.stays, self._detector = (
            other.batches,
            other.factor,
            other.stays,
            other._detector,
        )
        self.reset()
        self._usual = {name: Usual.of(usual) for name, usual in state["usual"].items()}
        for name, scales in state["scales"].items():
            for scale in scales:
                mean, deviation, filled = scale
                self._judge(-1, name, (mean, deviation, filled))
        self.seen = state["seen"]


def _key(name: str) -> str:
    """The name of a part without its places in lists."""
    return re.sub(r"\[\d+\]", "[]", name)
