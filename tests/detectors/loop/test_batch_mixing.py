from seismograd.detectors.loop.batch_mixing import BatchMixing
from seismograd.records import Reading, Severity


def reading(**mixing):
    told = {"samples": 32, "affected": 31, "largest": 0.1, "own": 0.2, "output": "output", **mixing}
    return Reading(2, facts={"samples": {"mixing": told, "at": {"file": "train.py", "line": 7, "code": "model(x)"}}})


def found(one, detector=None):
    return (detector or BatchMixing()).start().check(one)


def test_it_fires_and_says_where():
    finding = found(reading(module="rnn", kind="LSTM"))
    assert finding.id == "batch-mixing"
    assert finding.severity is Severity.WARNING
    assert "`rnn` (LSTM)" in finding.message
    assert "31 of the 31" in finding.message
    assert (finding.where.module, finding.where.file, finding.where.line) == ("rnn", "train.py", 7)
    assert "batch_first=True" in finding.recommendations[0]


def test_code_of_the_model_itself():
    assert "own forward, before `head`" in found(reading(module="", before="head")).message
    assert "dim=-1" in found(reading(module="out", kind="Softmax")).recommendations[0]


def test_samples_that_are_kept_apart():
    assert found(reading(affected=0)) is None
    assert found(Reading(2, facts={"samples": {"lookahead": {"positions": 9, "ahead": 0}}})) is None


def test_its_limit():
    assert found(reading(affected=2), BatchMixing(samples=2)) is not None
    assert found(reading(affected=1), BatchMixing(samples=2)) is None
