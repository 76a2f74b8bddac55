"""What every detector keeps to, looped over `DEFAULT`."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

from seismograd.detectors import DEFAULT, by_id
from seismograd.judge import Judge
from seismograd.protocols import Detector
from seismograd.records import Severity, strict

CATALOGUE = {
    "nonfinite-input", "nonfinite-activation",
    "nonfinite-loss", "nonfinite-gradient", "nonfinite-parameter", "gradient-explosion", "gradient-vanishing",
    "amp-scale-collapse", "precision-underflow", "loss-explosion", "loss-spike", "loss-plateau", "loss-oscillation",
    "overfitting", "lr-too-high", "lr-too-low", "lr-jump", "update-ratio-high", "update-ratio-low",
    "weight-decay-dominates", "bad-initialization",
    "dead-units", "saturated-units", "constant-output", "output-range",
    "missing-zero-grad", "lost-gradient", "missing-step", "accumulation-mismatch", "unoptimized-parameter",
    "unregistered-parameter", "frozen-parameter", "ineffective-freeze", "unused-parameter", "missing-gradient",
    "detached-loss", "ineffective-clipping", "eval-mode-training", "train-mode-evaluation", "buffer-drift",
    "double-softmax", "loss-input-mismatch", "missing-activation", "broadcast-loss", "batch-mixing", "target-leak",
    "scheduler-order", "unnormalized-input", "unnormalized-target", "label-out-of-range", "class-imbalance",
    "shuffled-labels", "unshuffled-data", "repeated-batch", "duplicate-randomness", "input-drift",
    "data-starvation", "slow-step", "repeated-recovery",
    "growing-graph", "memory-leak", "memory-pressure", "cpu-pressure",
    "rank-desync", "rank-straggler", "rank-nonfinite", "rank-hang", "rank-uneven-input", "rank-same-data",
    "rank-sampler", "rank-same-randomness",
}  # fmt: skip

every = pytest.mark.parametrize("detector", DEFAULT, ids=lambda detector: detector.id)


def test_the_catalogue_is_covered():
    assert {detector.id for detector in DEFAULT} == CATALOGUE
    assert len({detector.id for detector in DEFAULT}) == len(DEFAULT)


@every
def test_is_a_frozen_description(detector):
    assert isinstance(detector, Detector)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", detector.id)
    assert by_id(detector.id) is detector
    assert {detector: 1}[dataclasses.replace(detector)] == 1
    limits = dataclasses.fields(detector)
    for limit in limits:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(detector, limit.name, 0)
    assert set(detector.follows) <= CATALOGUE
    assert detector.id not in detector.follows


@every
def test_its_docstring_is_its_page(detector):
    text = type(detector).__doc__
    summary, *_ = text.split("\n\n")
    assert summary.strip().endswith(".")
    assert "\n" not in summary.strip()
    heads = [
        text.index(f"{head}\n    {'-' * len(head)}")
        for head in ("Why it matters", "How it is judged", "What to try", "An example")
    ]
    assert heads == sorted(heads)
    for limit in dataclasses.fields(detector):
        assert f"`{limit.name}`" in text, f"`{limit.name}` is not explained"


def test_an_unknown_id_lists_the_known():
    with pytest.raises(KeyError, match="loss-plateau"):
        by_id("loss-platau")


def test_mutual_causes_are_decided_by_the_step_and_nothing_else_is_a_circle():
    """What may be seen at the same step has an order: following causes never comes back."""
    place = {detector.id: at for at, detector in enumerate(DEFAULT)}
    follows = {detector.id: set(detector.follows) for detector in DEFAULT}
    edges = {
        effect: {c for c in causes if c in place and not (effect in follows[c] and place[effect] < place[c])}
        for effect, causes in follows.items()
    }
    while edges:
        free = [effect for effect, causes in edges.items() if not causes & edges.keys()]
        assert free, f"a circle among {sorted(edges)}"
        for effect in free:
            del edges[effect]


def sick(lab):
    """Readings in which nearly everything goes wrong in turn."""
    rng = np.random.default_rng(0)
    yield lab.reading(0, 6, loss=500.0, parameter_gain=20.0, gradient_norm=10.0 ** -np.arange(6.0))
    for step in range(1, 400):
        measures = {
            "update_ratio": [1.5, 1.5, 1e-9, 1.5, 1.5, 1.5] if step % 7 else 1e-9,
            "update_changed": 0.0,
            "update_decay": 5e-3,
            "gradient_norm": 10.0 ** np.arange(-9.0, -3.0),
        }
        loss = [2.3, 2.3 * 1.5 ** (step % 40), math.nan, 3.0 + (-1) ** step][step // 100]
        reading = lab.reading(step, 6, loss=loss, lr=[0.1, 0.1, -0.1, 1.0][step // 100], **measures)
        extra = {"amp/scale": 2.0 ** (16 - step), "val_loss": 1.0 + step / 100, "weight_decay/0": 0.1}
        norm = {"grad/norm": math.inf if step == 150 else float(rng.lognormal()) * (1e9 if step in (60, 61) else 1)}
        yield dataclasses.replace(reading, scalars={**reading.scalars, **extra, **norm})


def test_findings_are_plain_json(lab):
    judge = Judge(DEFAULT)
    for reading in sick(lab):
        judge.observe(reading)
    assert len(judge.findings) >= 7
    for finding in judge.findings:
        assert isinstance(finding.severity, Severity)
        assert finding.message.endswith(".")
        assert finding.recommendations
        assert "limit" in finding.evidence
        for value in finding.evidence.values():
            assert type(value) in (int, float, str, bool), f"{finding.id}: {finding.evidence}"
        json.dumps(strict(finding.to_dict()), allow_nan=False)


@every
def test_checkers_are_independent(detector, lab):
    readings = list(sick(lab))
    disturbed, fresh = detector.start(), detector.start()
    alone = lab.run(detector, readings)
    fit = [reading for reading in readings if lab.fits(detector, reading)]
    for reading in fit[:50]:
        disturbed.check(reading)
    again = [finding for finding in (fresh.check(reading) for reading in fit) if finding is not None]
    assert [(f.step, f.message) for f in again] == [(f.step, f.message) for f in alone]


def size(value) -> int:
    """How much a checker remembers: everything below its slots."""
    state = {name: getattr(value, name) for name in value.__slots__ if name != "_detector"}
    return len(pickle.dumps(state))


@every
def test_memory_does_not_grow(detector, lab):
    rng = np.random.default_rng(0)
    checker = detector.start()
    known = {"lr", "loss", "grad/norm", "val_loss", "amp/scale", "gradient", "parameter", "update"}
    if not all(known & set(need.split("|")) for need in detector.needs):
        pytest.skip("sees a table only when something is wrong")
    sizes = []
    for step in range(10_000):
        loss = float(rng.lognormal())
        reading = lab.reading(step, 3, loss=loss) if step % 10 == 0 else None
        scalars = {"loss": loss, "grad/norm": float(rng.lognormal()), "lr/0": 1e-3, "amp/scale": 1.0, "val_loss": loss}
        if reading is None:
            reading = lab.scalars([1.0])[0]
        reading = dataclasses.replace(reading, step=step, scalars={**reading.scalars, **scalars})
        if lab.fits(detector, reading):
            checker.check(reading)
        if step in (2_000, 9_999):
            sizes.append(size(checker))
    assert sizes[1] <= sizes[0] + 200


def test_without_torch():
    program = "import sys, seismograd.detectors; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
