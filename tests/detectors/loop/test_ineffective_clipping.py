import pytest

from seismograd.detectors.loop.ineffective_clipping import IneffectiveClipping


@pytest.mark.parametrize("kind", ["late", "early", "nothing"])
def test_fires(order, kind):
    findings = order.run(IneffectiveClipping(), *order.turns(4, clips=[kind], limit=1.0))
    assert (findings[0].step, findings[0].severity) == (2, "warning")
    assert findings[0].evidence["clipped"] == kind


def test_fires_on_scaled_gradients_unless_the_limit_is_scaled_too(order):
    assert order.run(IneffectiveClipping(), *order.turns(4, clips=["scaled"], limit=1.0, scale=65536.0))
    assert order.run(IneffectiveClipping(), *order.turns(4, clips=["scaled"], limit=65536.0, scale=65536.0)) == []
    assert order.run(IneffectiveClipping(), *order.turns(4, clips=["scaled"], limit=1.0)) == []


def test_silent_when_any_call_is_in_its_place(order):
    assert order.run(IneffectiveClipping(), *order.turns(9, clips=["late", "right"], limit=1.0)) == []
    assert order.run(IneffectiveClipping(), *order.turns(9)) == []
    mixed = [order.reading(at, order.turn(clips=["late" if at % 3 else "right"])) for at in range(30)]
    assert order.run(IneffectiveClipping(), *mixed) == []


def test_on_its_limit(order):
    assert order.run(IneffectiveClipping(), *order.turns(2, clips=["late"])) == []
    assert order.run(IneffectiveClipping(in_a_row=2), *order.turns(2, clips=["late"]))
