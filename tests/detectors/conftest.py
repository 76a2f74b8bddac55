"""A lab for detectors: readings written by hand, no torch."""

from __future__ import annotations

import numpy as np
import pytest

from seismograd.records import Finding, Reading, TensorStats


class Lab:
    """Makes readings of a model with `layers` weight matrices and their biases, and runs detectors over them."""

    @staticmethod
    def fits(detector, reading) -> bool:
        """Whether the judge would call the detector for this reading."""
        have = {*reading.scalars, *reading.tensors, *(["lr"] if "lr/0" in reading.scalars else [])}
        have |= {"origin"} if reading.origin is not None else set()
        have |= {f"facts/{topic}" for topic in reading.facts}
        return all(have & set(need.split("|")) for need in detector.needs)

    @staticmethod
    def run(detector, readings) -> list[Finding]:
        checker = detector.start()
        found = [checker.check(reading) for reading in readings if Lab.fits(detector, reading)]
        return [finding for finding in found if finding is not None]

    @staticmethod
    def scalars(losses=None, **others) -> list[Reading]:
        """A reading for each value; names with `__` for `/`; a number stands for a constant series, None for absent."""
        series = {name.replace("__", "/"): values for name, values in others.items()}
        if losses is not None:
            series["loss"] = losses
        length = max(len(values) for values in series.values() if np.ndim(values))
        columns = {name: values if np.ndim(values) else [values] * length for name, values in series.items()}
        return [
            Reading(step, {name: float(values[step]) for name, values in columns.items() if values[step] is not None})
            for step in range(length)
        ]

    @staticmethod
    def names(layers: int) -> tuple[str, ...]:
        return tuple(f"layers.{at}.{kind}" for at in range(layers) for kind in ("weight", "bias"))

    @classmethod
    def reading(cls, step, layers=4, *, loss=1.0, lr=1e-3, marks=(), first_norm=None, **measures) -> Reading:
        """A sampled reading; measures are given for the weight matrices (`update_ratio=[...]` or one number)."""
        names = cls.names(layers)
        usual = {
            "gradient_norm": 0.1,
            "parameter_norm": 5.0,
            "parameter_size": 4096.0,
            "parameter_gain": 0.58,
            "parameter_std": 0.07,
            "update_norm": 5e-3,
            "update_ratio": 1e-3,
            "update_changed": 1.0,
            "update_gradient": 0.1,
            "update_decay": 0.0,
            "update_lr": lr if not np.ndim(lr) else np.nan,
            "update_precision": 1.2e-7,
        } | measures
        tables: dict[str, dict[str, np.ndarray]] = {}
        for key, values in usual.items():
            kind, _, measure = key.partition("_")
            full = np.full(len(names), np.nan if measure == "gain" else 0.01)
            full[::2] = values
            tables.setdefault(kind, {})[measure] = full
        tensors = {kind: TensorStats(names, columns) for kind, columns in tables.items()}
        norm = float(np.sqrt(np.sum(tables["gradient"]["norm"] ** 2))) if first_norm is None else first_norm
        scalars = {"loss": loss, "grad/norm": norm, "update/step": step - 1.0}
        rates = lr if np.ndim(lr) else [lr]
        scalars |= {f"lr/{group}": float(rate) for group, rate in enumerate(rates)}
        return Reading(step, scalars, tensors, marks=frozenset(marks))


@pytest.fixture
def lab() -> Lab:
    return Lab()
