"""A rank's own notes: what it tells the others of a step, from its readings and from what its onlooker saw."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from seismograd.records import Reading, TensorStats, strict

if TYPE_CHECKING:
    from seismograd.onlookers.ranks.replicas import Replicas

NAMED = 8
"""So many parameters without a gradient are named."""
KEPT = 8
"""Steps whose readings wait for what else is known of them."""

_KNOWN = ("kind", "group", "signature")


class Notes:
    """Puts together what belongs to one step. On the training's thread: plain and quick."""

    def __init__(self, rank: int, world: int) -> None:
        self._rank, self._world = rank, world
        self._open: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._known: dict[str, Any] = {}
        self._shares: tuple[Any, Any] = (None, None)
        self.newest = -1
        """The newest step that was read."""
        self.collectives: int | None = None

    def hear(self, reading: Reading, replicas: Replicas | None) -> dict[str, Any] | None:
        """Takes a reading; what is broken is told at once."""
        scalars = reading.plain().scalars
        if "ranks" in reading.facts or not ({"loss", "grad/norm"} & scalars.keys()) or "after-step" in reading.marks:
            return None
        self.newest = max(self.newest, reading.step)
        note = self._open.setdefault(reading.step, {"step": reading.step})
        while len(self._open) > KEPT:
            self._open.popitem(last=False)
        if "loss" in scalars:
            note["loss"] = scalars["loss"] if reading.series in (None, 0) or "loss" not in note else note["loss"]
        table = reading.tensors.get("gradient")
        if table is not None:
            self._add_gradients(note, table, replicas)
        rates = [value for name, value in scalars.items() if name.startswith("lr/")]
        if rates:
            note["rates"] = rates
        if "amp-skipped" in reading.marks:
            note["skipped"] = True
        broken = _broken(reading, scalars.get("loss"))
        if broken is None or "told" in note:
            return None
        note["broken"] = broken
        note["told"] = True
        return self._finished(note, self._known)

    def state(self, step: int, state: dict[str, Any]) -> dict[str, Any] | None:
        """What the onlooker saw of a step: with it the note is whole."""
        self._known = {key: state[key] for key in _KNOWN}
        self.collectives = state.get("collectives", self.collectives)
        note = self._open.pop(step, None)
        if note is None or "told" in note:
            return None
        return self._finished(note, state)

    def _finished(self, note: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        told = {**{key: value for key, value in note.items() if key != "told"}, **state}
        if "gradients" in told:
            told["gradients"] = int.from_bytes(told["gradients"].digest()[:6], "big")
        result: dict[str, Any] = strict(told)
        return result

    def _add_gradients(self, note: dict[str, Any], table: TensorStats, replicas: Replicas | None) -> None:
        wrapping = None if replicas is None else replicas.wrapping
        if wrapping is None or not wrapping.shares:
            return
        names, norms = table.names, np.asarray(table.columns["norm"], dtype=np.float64)
        if self._shares[0] is not names:
            known = wrapping.shares
            self._shares = (names, np.array([known.get(name, 1.0 / self._world) for name in names]))
        shares = self._shares[1]
        with np.errstate(all="ignore"):
            squares = float((norms * norms * shares).sum())
        note["squares"] = note.get("squares", 0.0) + squares
        alike = shares <= 1.0 / self._world + 1e-12
        if wrapping.kind != "mixed" and alike.any() and np.isfinite(norms).all():
            note.setdefault("gradients", hashlib.blake2b(digest_size=8)).update(norms[alike].tobytes())
        note["graded"] = note.get("graded", 0) + len(names)
        if replicas is not None and len(names) < len(wrapping.shares):
            there = set(names)
            note["ungraded"] = [name for name in wrapping.shares if name not in there][:NAMED]


def _broken(reading: Reading, loss: float | None) -> dict[str, Any] | None:
    """What is not finite in it, as this rank saw it."""
    loss_bad = loss is not None and not math.isfinite(loss)
    gradient_bad = "nonfinite" in reading.tensors
    if not loss_bad and not gradient_bad:
        return None
    told: dict[str, Any] = {"loss": loss, "loss_bad": loss_bad, "gradient_bad": gradient_bad, "input_bad": False}
    if "amp-skipped" in reading.marks:
        told["skipped"] = True
    origin = reading.origin
    told["origin"] = None
    if origin is not None:
        told["input_bad"] = origin.phase == "input"
        if origin.phase:
            where = origin.where
            told["origin"] = {
                "phase": origin.phase,
                "module": where.module,
                "op": where.op,
                "file": where.file,
                "line": where.line,
                "code": where.code,
                "sure": origin.sure,
                "samples": [index[0] for index in origin.index[:4] if index],
            }
        if origin.note is not None:
            told["note"] = origin.note[:300]
        if "capture" in origin.facts:
            told["capture"] = str(origin.facts["capture"])
    return told
