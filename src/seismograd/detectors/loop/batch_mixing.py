"""`batch-mixing`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class BatchMixing:
    """The output for one sample depends on the other samples of its batch.

    Why it matters
    --------------
    Samples are meant to be judged one by one. Where they mix, a model learns from neighbours that it will not have
    later, and its answer changes with whatever happens to share the batch. The loss may fall all the same, so nobody
    notices. Mostly an axis was mistaken: a `view` where a `transpose` was meant, a softmax over the batch, a recurrent
    or attention layer that takes the first axis for time.

    How it is judged
    ----------------
    Once, at one of the first steps, the model is called a second time in evaluation mode with another sample in the
    place of the first; everything is put back. At least `samples` of the other samples' outputs have to change by more
    than rounding. Batch norm and dropout play no part in that mode. Nothing is said where it is not certain which axis
    counts samples (torch's own collation made the batch, or there is one target for each entry), and where mixing is
    meant: statistics over the batch, graphs, tables of all pairs, mixtures of experts.

    What to try
    -----------
    `batch_first=True` for `nn.LSTM`, `nn.GRU`, `nn.MultiheadAttention` and `nn.TransformerEncoderLayer` whose data is
    `(batch, time, features)`; `dim=-1` for softmax and normalisation; `transpose` or `permute` to swap axes,
    `flatten(1)` or `view(x.size(0), -1)` to merge them.

    An example
    ----------
    Data is `(batch, time, features)`, the layer expects `(time, batch, features)`:

        self.rnn = nn.LSTM(16, 32)                    # goes from sample to sample
        self.rnn = nn.LSTM(16, 32, batch_first=True)  # goes through time
    """

    id: ClassVar[str] = "batch-mixing"
    needs: ClassVar[tuple[str, ...]] = ("facts/samples",)
    follows: ClassVar[tuple[str, ...]] = ()

    samples: int = 1

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: BatchMixing) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        told = reading.facts["samples"]
        mixing = told.get("mixing")
        if not mixing or mixing["affected"] < max(1, self._detector.samples):
            return None
        others, affected = mixing["samples"] - 1, mixing["affected"]
        message = (
            f"Samples mix: with one sample of {mixing['samples']} exchanged, the output of {affected} of the {others}"
            f" others changes too{_place(mixing)}."
        )
        at = told.get("at") or {}
        where = Where(module=mixing.get("module") or None, phase="forward", **at)
        evidence = {name: mixing[name] for name in ("samples", "affected", "largest", "own", "output")}
        evidence["limit"] = self._detector.samples
        return found(
            self._detector, reading, Severity.WARNING, message, evidence, advice=[_advice(mixing)], where=where
        )


def _place(mixing: dict[str, Any]) -> str:
    if mixing.get("before"):
        inside = f"`{mixing['module']}`" if mixing["module"] else "the model"
        return f"; it begins in {inside}'s own forward, before `{mixing['before']}`"
    if mixing.get("module"):
        return f"; it begins in `{mixing['module']}` ({mixing['kind']})"
    return ""


_SEQUENCES = ("LSTM", "GRU", "RNN", "MultiheadAttention", "Transformer")


def _advice(mixing: dict[str, Any]) -> str:
    kind, name = mixing.get("kind") or "", mixing.get("module") or "the layer"
    if any(word in kind for word in _SEQUENCES):
        return f"Give `{name}` `batch_first=True`: it takes the first axis for time, and that counts samples here."
    if "Softmax" in kind:
        return f"Give `{name}` `dim=-1`: it normalises over the samples of the batch."
    if "Norm" in kind:
        return f"Have `{name}` normalise features only: its shape includes the batch."
    return (
        "Look for an axis that is mistaken: `view` or `reshape` where `transpose` is meant, `dim=0` in a softmax or a"
        " norm, a recurrent or attention layer without `batch_first=True`."
    )
