"""The detectors of who takes part, is held and changes, on facts written by hand."""

from __future__ import annotations

import pytest

from seismograd.detectors.loop.detached_loss import DetachedLoss
from seismograd.detectors.loop.frozen_parameter import FrozenParameter
from seismograd.detectors.loop.ineffective_freeze import IneffectiveFreeze
from seismograd.detectors.loop.missing_gradient import MissingGradient
from seismograd.detectors.loop.unoptimized_parameter import UnoptimizedParameter
from seismograd.detectors.loop.unregistered_parameter import UnregisteredParameter
from seismograd.detectors.loop.unused_parameter import UnusedParameter
from seismograd.records import Reading, Severity

ALL = (
    DetachedLoss(), MissingGradient(), UnusedParameter(), UnoptimizedParameter(), UnregisteredParameter(),
    FrozenParameter(), IneffectiveFreeze(),
)  # fmt: skip
LINE = {"file": "train.py", "line": 12, "code": "loss.backward()"}


def optimizer(**changes):
    usual = {"name": "Adam", "steps": 20, "fed": 20, "parameters": 4, "needing": 4, "unreached": 0, "copies": 0}
    return usual | {"orphans": 0, "rates": [1e-3], "called": True, "first": "0.weight"} | changes


def facts(looks=20, **changes):
    """What a healthy run tells."""
    usual = {"looks": looks, "backwards": looks, "held": 4, "reached": 4, "strangers": 0, "elements": 1000}
    return usual | {"optimizers": [optimizer(steps=looks, fed=looks)], "line": LINE, "over": False} | changes


def check(detector, told):
    return detector.start().check(Reading(7, facts={"parameters": told}))


@pytest.mark.parametrize("detector", ALL, ids=lambda detector: detector.id)
def test_a_healthy_run_is_left_alone(detector):
    assert check(detector, facts()) is None
    assert check(detector, facts(looks=1)) is None
    assert check(detector, facts(optimizers=[])) is None


# -- detached-loss -----------------------------------------------------------------------------------------------------


def cut_off(backwards=6, **changes):
    starved = optimizer(steps=backwards, fed=0, unreached=4)
    return facts(backwards=backwards, reached=0, optimizers=[starved]) | changes


def test_a_loss_without_a_way_back():
    finding = check(DetachedLoss(), cut_off())
    assert finding.severity is Severity.CRITICAL
    assert finding.message.startswith("The loss is cut off from the model: 6 backward passes reached none of the 4")
    assert (finding.where.file, finding.where.line) == ("train.py", 12)


def test_a_loss_that_reaches_anything_is_not_detached():
    assert check(DetachedLoss(), cut_off(strangers=1)) is None
    assert check(DetachedLoss(), cut_off(reached=1)) is None
    assert check(DetachedLoss(), cut_off(optimizers=[optimizer(fed=1)])) is None
    assert check(DetachedLoss(), cut_off(held=0)) is None


@pytest.mark.parametrize(("needing", "detached"), [(4, True), (1, True), (0, False)])
def test_an_error_of_a_loss_without_a_history(needing, detached):
    raised = {"needing": needing, "of": 4, "adapters": ["fc.lora_A.default.weight"]}
    told = facts(backwards=0, reached=0, looks=1, optimizers=[], raised=raised)
    loss, frozen = check(DetachedLoss(), told), check(FrozenParameter(), told)
    assert (loss is not None, frozen is not None) == (detached, not detached)
    finding = loss or frozen
    assert (finding.severity, finding.where.line) == (Severity.CRITICAL, 12)
    assert ("is_trainable=True" in " ".join(finding.recommendations)) is not detached


def test_the_limit_of_a_detached_loss():
    assert check(DetachedLoss(), cut_off(4)) is not None
    assert check(DetachedLoss(), cut_off(3)) is None
    assert check(DetachedLoss(backwards=3), cut_off(3)) is not None


# -- missing-gradient --------------------------------------------------------------------------------------------------

CUT = {"names": ["encoder.weight"], "count": 1, "elements": 100, "times": 20, "evaluates": False}


def test_a_part_that_is_cut_off():
    finding = check(MissingGradient(), facts(cut=CUT))
    assert finding.severity is Severity.WARNING
    assert "`encoder.weight`" in finding.message
    assert finding.where.module == "encoder"
    assert check(MissingGradient(), facts(cut=CUT | {"elements": 500})).severity is Severity.CRITICAL


def test_the_limit_of_a_part_that_is_cut_off():
    assert check(MissingGradient(), facts(looks=8, cut=CUT)) is not None
    assert check(MissingGradient(), facts(looks=7, cut=CUT)) is None
    assert check(MissingGradient(looks=7), facts(looks=7, cut=CUT)) is not None
    assert check(MissingGradient(), facts(cut=CUT | {"times": 3})) is None
    assert check(MissingGradient(), facts(cut=CUT | {"evaluates": True})) is None


def test_an_optimizer_that_never_gets_anything():
    starved = optimizer(fed=0, unreached=4, first="G.0.weight")
    finding = check(MissingGradient(), facts(optimizers=[optimizer(), starved]))
    assert finding.severity is Severity.CRITICAL
    assert "Adam has stepped 20 times and not one of its 4 parameters (`G.0.weight` first)" in finding.message
    for healthy in ({"fed": 1}, {"unreached": 3}, {"called": False}, {"steps": 7}, {"copies": 2}):
        assert check(MissingGradient(), facts(optimizers=[optimizer(), starved | healthy])) is None


# -- unused-parameter --------------------------------------------------------------------------------------------------

UNUSED = {
    "module": "fc2", "kind": "Linear", "parameters": 2, "elements": 100, "weights": True, "passed_over": True,
    "fits": True,
}  # fmt: skip


def test_a_forgotten_layer():
    finding = check(UnusedParameter(), facts(unused=[UNUSED]))
    assert finding.severity is Severity.WARNING
    assert finding.message.startswith("`fc2` (Linear) is never called")
    assert check(UnusedParameter(), facts(looks=15, unused=[UNUSED])) is None
    assert check(UnusedParameter(looks=15), facts(looks=15, unused=[UNUSED])) is not None


@pytest.mark.parametrize("missing", ["weights", "passed_over", "fits"])
def test_what_may_wait_for_its_turn_is_only_mentioned(missing):
    assert check(UnusedParameter(), facts(unused=[UNUSED | {missing: False}])).severity is Severity.INFO


def test_what_nobody_uses_is_only_mentioned():
    finding = check(UnusedParameter(), facts(idle=idle()))
    assert finding.severity is Severity.INFO
    assert "no part in the loss" in finding.message


def idle(dropped=0, measured=0):
    module = {"module": "pooler", "parameters": 1, "dropped": dropped, "measured": measured, "line": LINE}
    return {"names": ["pooler.weight"], "count": 1, "modules": [module]}


def test_what_is_called_for_nothing():
    finding = check(UnusedParameter(), facts(idle=idle(dropped=8)))
    assert (finding.severity, finding.where.module) == (Severity.WARNING, "pooler")
    assert "makes no use of what it gives" in finding.message
    assert check(UnusedParameter(), facts(idle=idle(dropped=7))).severity is Severity.INFO


def test_a_loss_that_is_left_out():
    told = facts(idle=idle(measured=8), over=True)
    finding = check(DetachedLoss(), told)
    assert (finding.severity, finding.where.module, finding.where.line) == (Severity.WARNING, "pooler", 12)
    assert "no backward goes through it" in finding.message
    assert check(UnusedParameter(), told) is None
    assert check(DetachedLoss(), facts(idle=idle(measured=8), looks=48)).severity is Severity.WARNING
    for other in ({"idle": idle(measured=8)}, {"idle": idle(measured=7), "over": True}):  # it may come later
        assert check(DetachedLoss(), facts(**other)) is None
        assert check(UnusedParameter(), facts(**other)).severity is Severity.INFO


# -- unoptimized-parameter ---------------------------------------------------------------------------------------------

HEAD = {
    "model": "", "whole": False, "names": ["fc.weight", "fc.bias"], "count": 2, "late": ["fc.weight", "fc.bias"],
    "modules": 4, "left": 1, "thawed": [], "times": 20, "evaluates": False, "calls": 1, "elements": 50,
    "early": False, "fresh": False,
}  # fmt: skip


def test_a_raw_model_that_feeds_the_rest():
    encoder = HEAD | {"model": "encoder", "whole": True, "late": [], "calls": 3, "elements": 5000}
    raw = encoder | {"early": True, "fresh": True}
    finding = check(UnoptimizedParameter(), facts(outside=[raw]))
    assert finding.severity is Severity.WARNING
    assert "All of `encoder` is as it was initialised." in finding.message
    for healthy in ({"early": False}, {"fresh": False}, {"fresh": None}, {"evaluates": True}):
        assert check(UnoptimizedParameter(), facts(outside=[raw | healthy])).severity is Severity.INFO


def test_a_head_that_is_left_out():
    finding = check(UnoptimizedParameter(), facts(outside=[HEAD], optimizers=[optimizer(orphans=2)]))
    assert finding.severity is Severity.WARNING
    assert "`fc.weight`, `fc.bias`" in finding.message
    assert "holds 2 others that the model does not use" in finding.message
    assert check(UnoptimizedParameter(), facts(outside=[HEAD | {"times": 7}])) is None
    assert check(UnoptimizedParameter(looks=7), facts(outside=[HEAD | {"times": 7}])) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"late": []},  # a backbone under a head
        {"left": 3},  # most of the model: a prompt is tuned
        {"whole": True, "calls": 2},  # a network that the loss looks through
        {"whole": True, "evaluates": True},
        {"whole": True, "elements": 5000},  # an input is optimized
    ],
)
def test_what_is_left_out_on_purpose_is_only_mentioned(changes):
    assert check(UnoptimizedParameter(), facts(outside=[HEAD | changes])).severity is Severity.INFO


def test_nothing_is_said_before_every_optimizer_has_stepped():
    waits = optimizer(steps=0, fed=0)
    assert check(UnoptimizedParameter(), facts(outside=[HEAD], optimizers=[optimizer(), waits])) is None
    assert check(UnoptimizedParameter(), facts(outside=[HEAD], optimizers=[])) is None


def test_all_that_is_held_is_frozen_and_what_learns_is_not_held():
    adapter = HEAD | {"late": [], "names": ["lora_A"], "left": 3}
    frozen = optimizer(fed=0, needing=0)
    finding = check(UnoptimizedParameter(), facts(outside=[adapter], optimizers=[frozen]))
    assert finding.severity is Severity.CRITICAL
    assert "All that the optimizer holds is frozen" in finding.message
    assert check(UnoptimizedParameter(), facts(optimizers=[frozen])) is None
    for healthy in ({"needing": 1}, {"fed": 3}, {"steps": 7}):
        found = check(UnoptimizedParameter(), facts(outside=[adapter], optimizers=[frozen | healthy]))
        assert found is None or found.severity is Severity.INFO
    assert check(UnoptimizedParameter(), facts(outside=[adapter | {"times": 7}], optimizers=[frozen])) is None


def test_what_was_unfrozen_later():
    thawed = HEAD | {"late": [], "thawed": ["fc.weight"], "times": 3}
    finding = check(UnoptimizedParameter(), facts(outside=[thawed]))
    assert finding.severity is Severity.WARNING
    assert "They were frozen when the optimizer was built." in finding.message


def test_an_optimizer_of_copies():
    copies = optimizer(steps=5, fed=0, unreached=4, copies=4)
    finding = check(UnoptimizedParameter(), facts(optimizers=[copies]))
    assert finding.severity is Severity.CRITICAL
    assert "weights that are not the model's" in finding.message
    for other in ({"copies": 1}, {"fed": 1}, {"steps": 4}, {"unreached": 3}):
        assert check(UnoptimizedParameter(), facts(optimizers=[copies | other])) is None


# -- unregistered-parameter --------------------------------------------------------------------------------------------

LAYER = {"name": "layers[0]", "owner": "", "layer": True, "looks": 5, "distinct": 2, "again": 0}


def test_layers_in_a_list():
    finding = check(UnregisteredParameter(), facts(unregistered=[LAYER]))
    assert finding.severity is Severity.WARNING
    assert "`layers[0]` is used by the model" in finding.message
    assert "self.layers = nn.ModuleList(...)" in finding.recommendations[0]
    assert check(UnregisteredParameter(), facts(unregistered=[LAYER | {"looks": 4}])) is None
    assert check(UnregisteredParameter(looks=4), facts(unregistered=[LAYER | {"looks": 4}])) is not None


def test_a_layer_made_anew_and_a_plain_tensor():
    many = LAYER | {"distinct": 10, "again": 10}  # a large one
    assert "made anew" not in check(UnregisteredParameter(), facts(unregistered=[many])).message
    finding = check(UnregisteredParameter(), facts(unregistered=[LAYER | {"name": "Linear #0", "distinct": 10}]))
    assert "made anew in every forward pass" in finding.message
    finding = check(UnregisteredParameter(), facts(unregistered=[LAYER | {"name": "scale", "layer": False}]))
    assert "self.scale = nn.Parameter(...)" in finding.recommendations[0]


# -- frozen-parameter --------------------------------------------------------------------------------------------------

BLOCKED = {"names": ["encoder.weight"], "count": 1, "ops": ["round"], "elements": 100}


def test_a_way_without_a_slope():
    finding = check(FrozenParameter(), facts(blocked=BLOCKED))
    assert finding.severity is Severity.WARNING
    assert "`encoder.weight` leads through `round`" in finding.message
    assert check(FrozenParameter(), facts(blocked=BLOCKED | {"elements": 1000})).severity is Severity.CRITICAL
    assert check(FrozenParameter(), facts(looks=4, blocked=BLOCKED)) is None
    assert check(FrozenParameter(looks=4), facts(looks=4, blocked=BLOCKED)) is not None


def test_weights_that_are_put_back():
    restored = {"names": ["0.weight"], "times": 12, "of": 1}
    finding = check(FrozenParameter(), facts(restored=restored))
    assert finding.severity is Severity.CRITICAL
    assert "put back to the same values before the next one, 12 times in a row" in finding.message
    assert check(FrozenParameter(), facts(restored=restored | {"of": 3})).severity is Severity.WARNING
    assert check(FrozenParameter(), facts(restored=restored | {"times": 11})) is None
    assert check(FrozenParameter(restored=11), facts(restored=restored | {"times": 11})) is not None


def test_an_optimizer_over_frozen_parameters():
    frozen = optimizer(fed=0, needing=0)
    assert "none has `requires_grad`" in check(FrozenParameter(), facts(optimizers=[optimizer(), frozen])).message
    for other in ({"fed": 1}, {"needing": 1}, {"steps": 9}, {"parameters": 0}):
        assert check(FrozenParameter(), facts(optimizers=[optimizer(), frozen | other])) is None


# -- ineffective-freeze ------------------------------------------------------------------------------------------------


def test_an_assignment_without_effect():
    claim = {"on": "backbone", "what": "module", "attribute": "requires_grad", "parameters": 2}
    finding = check(IneffectiveFreeze(), facts(claims=[claim]))
    assert finding.severity is Severity.WARNING
    assert finding.message.startswith("`backbone.requires_grad = False` has no effect on a module")
    assert "backbone.requires_grad_(False)" in finding.recommendations[0]
    assert check(IneffectiveFreeze(), facts(looks=4, claims=[claim])) is None
    assert check(IneffectiveFreeze(looks=4), facts(looks=4, claims=[claim])) is not None


def test_an_old_gradient():
    stale = {"names": ["backbone.weight"], "count": 1, "times": 3}
    assert "An old gradient is left" in check(IneffectiveFreeze(), facts(stale=stale)).message
    assert check(IneffectiveFreeze(), facts(stale=stale | {"times": 2})) is None
    assert check(IneffectiveFreeze(steps=2), facts(stale=stale | {"times": 2})) is not None
