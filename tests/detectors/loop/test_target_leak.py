from seismograd.detectors.loop.target_leak import TargetLeak
from seismograd.records import Reading, Severity


def found(detector=None, **facts):
    return (detector or TargetLeak()).start().check(Reading(3, facts=facts))


def ahead(count, **more):
    return {"lookahead": {"positions": 12, "ahead": count, "largest": 0.1, "output": "output", "own": True}, **more}


def column(**more):
    told = {"correlation": 1.0, "column": 4, "equal": True, "varies": True, "classes": False}
    return {**told, "rows": 128, "features": 7, "batches": 4, **more}


def test_a_model_that_sees_the_future():
    finding = found(samples=ahead(11))
    assert finding.severity is Severity.CRITICAL
    assert "last of 12 positions" in finding.message
    assert "causal mask" in finding.recommendations[0]
    assert found(samples=ahead(0)) is None
    assert found(samples={"mixing": {"samples": 4, "affected": 0}}) is None


def test_a_decoder_that_is_fed_its_target():
    told = {"positions": 9, "ahead": 0, "largest": 0.0, "output": "output", "own": True}
    assert "given the target itself" in found(samples={"given": told}).message
    assert found(samples={"given": {**told, "own": False}}) is None


def test_a_column_that_equals_the_target():
    finding = found(columns=column())
    assert finding.severity is Severity.WARNING
    assert "column 4" in finding.message
    assert found(columns=column(varies=False)) is None


def test_correlation_counts_for_classes_only():
    assert found(columns=column(equal=False, classes=True)) is not None
    assert found(columns=column(equal=False, classes=False)) is None


def test_its_limits():
    assert found(columns=column(equal=False, classes=True, correlation=0.999)) is None
    assert found(TargetLeak(correlation=0.99), columns=column(equal=False, classes=True, correlation=0.999)) is not None
    assert found(columns=column(batches=3)) is None
    assert found(TargetLeak(batches=3), columns=column(batches=3)) is not None
