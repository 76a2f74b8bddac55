import numpy as np

from seismograd.detectors.data.class_imbalance import ClassImbalance
from seismograd.records import Reading


def readings(count=150, share=0.95, guess=None, value=None, apart=0.0, **more):
    """Labels drawn with this share of class 0, guesses of class 0 unless given, scores `apart` by label."""
    rng = np.random.default_rng(0)
    entropy = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    made = []
    for step in range(count):
        labels = (rng.random(32) > share).astype(int)
        scores = rng.normal(-3, 0.5, 32) + apart * labels
        loss = {
            "kind": "classes", "name": "cross_entropy_loss", "alone": True, "weighted": False, "rows": 32, "batch": 32,
            "shape": [], "classes": 2, "labels": labels.tolist(), "scores": scores.tolist(),
            "guesses": [0] * 32 if guess is None else guess(labels),
            "value": entropy * (1 + 0.1 * rng.normal()) if value is None else value(step),
        }  # fmt: skip
        made.append(Reading(step, facts={"data": {"losses": [loss | more], "optimizers": 1}}))
    return made


def test_fires(lab):
    finding, *_ = lab.run(ClassImbalance(), readings())
    assert finding.step == 100
    assert finding.severity == "warning"
    assert finding.evidence["class"] == 0
    assert "every sample" in finding.message


def test_only_told_of_where_scores_tell_them_apart(lab):
    findings = lab.run(ClassImbalance(), readings(apart=1.0))
    assert {str(finding.severity) for finding in findings} == {"info"}


def test_only_told_of_where_it_still_learns(lab):
    findings = lab.run(ClassImbalance(), readings(value=lambda step: 0.23 - 0.001 * step))
    assert "warning" not in {str(finding.severity) for finding in findings}


def test_silent_where_the_rare_class_is_found(lab):
    assert lab.run(ClassImbalance(), readings(guess=lambda labels: labels.tolist())) == []


def test_silent_where_classes_are_weighed(lab):
    assert lab.run(ClassImbalance(), readings(weighted=True)) == []


def test_silent_where_labels_are_grey_levels(lab):
    assert lab.run(ClassImbalance(), readings(certain=[True]))
    assert lab.run(ClassImbalance(), readings(certain=[False])) == []


def test_silent_before_frequencies_are_learned(lab):
    assert lab.run(ClassImbalance(), readings(value=lambda step: 0.69)) == []


def test_silent_where_labels_are_balanced_or_all_alike(lab):
    assert lab.run(ClassImbalance(), readings(share=0.6)) == []
    assert lab.run(ClassImbalance(), readings(share=1 - 1e-9)) == []


def test_on_its_limits(lab):
    made = readings()
    assert lab.run(ClassImbalance(share=0.97), made) == []
    assert lab.run(ClassImbalance(patience=150), made) == []
    assert lab.run(ClassImbalance(others=500), made) == []
