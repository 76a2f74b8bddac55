import pytest

from seismograd.detectors.loop.detached_loss import DetachedLoss
from seismograd.detectors.loop.train_mode_evaluation import TrainModeEvaluation
from seismograd.judge import judge_all
from seismograd.records import Reading

BLOCK = {
    "calls": 4, "with_graph": 0, "live": 4, "off": 0, "losses": 0, "known": 0, "strange": 4, "loaded": 4,
    "again": False, "repeats": False, "resets": False, "classes": False, "dropout": ["drop"], "norms": [],
}  # fmt: skip
ONE = {"calls": 1, "live": 1, "strange": 1, "loaded": 0}
OFF = {**BLOCK, "live": 0, "off": 4}


def told(*blocks, detector=None):
    readings = [Reading(10 * at, facts={"modes": {"evaluations": [block]}}) for at, block in enumerate(blocks)]
    return judge_all(readings, [detector or TrainModeEvaluation()])


@pytest.mark.parametrize(
    ("block", "times"),
    [
        ({}, 1),  # another data set, no loss
        ({"losses": 4}, 1),
        ({"calls": 2, "live": 2, "strange": 2, "loaded": 2}, 2),
        ({**ONE, "losses": 1}, 1),  # held-out rows, with a loss
        ({**ONE, "classes": True}, 2),  # held-out rows, accuracy
        ({"losses": 4, "strange": 0, "loaded": 0}, 1),  # copies: what they are of is unknown
    ],
)
def test_fires(block, times):
    assert told(*[{**BLOCK, **block}] * (times - 1)) == []
    (finding,) = told(*[{**BLOCK, **block}] * times)
    assert finding.severity == "warning"
    assert "`drop` still drops values" in finding.message


def test_says_what_norms_do_and_where():
    (finding,) = told(
        {**BLOCK, "dropout": [], "norms": ["bn"], "with_graph": 4, "file": "a.py", "line": 4, "code": "x"}
    )
    assert "`bn` uses the batch's statistics" in finding.message
    assert finding.where.line == 4
    assert any("no_grad" in advice for advice in finding.recommendations)


@pytest.mark.parametrize(
    "block",
    [
        {"live": 0},  # on purpose: only dropout is live in a model in evaluation mode
        {"live": 3},
        {"known": 1},  # the training data
        {"repeats": True},
        {"resets": True},
        {"strange": 0, "loaded": 0},  # rollouts, samples: nobody compares
        {"strange": 4, "loaded": 0},  # fixed noise
        {"strange": 0, "loaded": 0, "losses": 2, "calls": 2, "live": 2},
    ],
)
def test_stays_silent(block):
    assert told(*[{**BLOCK, **block}] * 6) == []


def test_stays_silent_where_the_user_knows():
    assert told(OFF, BLOCK, BLOCK, BLOCK) == []


def test_fires_on_dropout_that_does_not_know_the_mode():
    call = {"what": "F.dropout", "rate": 0.3, "file": "net.py", "line": 12, "code": "x = F.dropout(x, 0.3)"}
    (finding,) = judge_all([Reading(9, facts={"modes": {"functional": [call]}})], [TrainModeEvaluation()])
    assert finding.where.line == 12
    assert "training=self.training" in finding.recommendations[0]


def test_limits_can_be_set():
    block = {**BLOCK, "calls": 3, "live": 3, "strange": 3, "loaded": 3}
    assert len(told(block)) == 1
    assert told(block, block, detector=TrainModeEvaluation(many=4, repeats=3)) == []
    assert len(told(block, block, block, detector=TrainModeEvaluation(many=4, repeats=3))) == 1


def test_steps_whose_loss_is_cut_off_are_no_evaluation():
    """Forward passes without a backward through them: it is said that they follow from that."""
    parameters = {"reached": 0, "strangers": [], "held": 4, "backwards": 6, "optimizers": [{"steps": 6, "fed": False}]}
    facts = {"modes": {"evaluations": [{**BLOCK, "losses": 4, "with_graph": 4}]}, "parameters": parameters}
    findings = judge_all([Reading(6, facts=facts)], [TrainModeEvaluation(), DetachedLoss()])
    assert [finding.id for finding in findings] == ["detached-loss", "train-mode-evaluation"]
    assert findings[1].evidence["because"] == "detached-loss"
