import pytest

from seismograd.detectors.numerics.precision_underflow import PrecisionUnderflow


def readings(lab, changed, count=10, **measures):
    return [lab.reading(10 * at, update_changed=changed, **measures) for at in range(count)]


def test_fires_when_nothing_changes(lab):
    findings = lab.run(PrecisionUnderflow(), readings(lab, 0.0))
    assert findings[0].step == 40
    assert findings[0].severity == "critical"
    assert findings[0].where.parameter == "layers.0.weight"


def test_warns_when_hardly_anything_changes(lab):
    assert lab.run(PrecisionUnderflow(), readings(lab, 0.01))[0].severity == "warning"


@pytest.mark.parametrize(
    "measures",
    [{"lr": 0.0}, {"update_gradient": 0.0}, {"gradient_zeros": 0.99}, {"lr": 1e-9}],
    ids=["no rate", "no gradient", "sparse", "no dtype could follow"],
)
def test_silent(lab, measures):
    assert lab.run(PrecisionUnderflow(), readings(lab, 0.0, **measures)) == []


def test_silent_at_the_end_of_a_decay_and_when_converged(lab):
    end = [lab.reading(10 * at, lr=1e-3 if at < 5 else 1e-9, update_changed=1.0 if at < 5 else 0.0) for at in range(20)]
    assert lab.run(PrecisionUnderflow(), end) == []
    calm = [
        lab.reading(10 * at, update_gradient=0.1 if at < 5 else 1e-6, update_changed=float(at < 5)) for at in range(20)
    ]
    assert lab.run(PrecisionUnderflow(), calm) == []


def test_silent_at_a_minimum(lab):
    """All gradients are rounding errors: with lr 0.1 in float32 nothing changes either."""
    assert lab.run(PrecisionUnderflow(), readings(lab, 0.0, lr=0.1, update_gradient=4e-5)) == []
    assert lab.run(PrecisionUnderflow(), readings(lab, 0.0, lr=0.1, update_gradient=6e-5)), "20 x 5e-5 is the limit"


def test_on_its_limit(lab):
    assert lab.run(PrecisionUnderflow(), readings(lab, 0.05)) == []
    assert lab.run(PrecisionUnderflow(), readings(lab, 0.049))
    assert lab.run(PrecisionUnderflow(), readings(lab, 0.0, count=4)) == []


def test_half_precision_could_have_been_followed_by_single(lab):
    tiny = {"lr": 1e-6, "update_lr": 1e-6, "parameter_norm": 6.4}
    assert lab.run(PrecisionUnderflow(), readings(lab, 0.0, **tiny | {"parameter_norm": 64.0})) == []
    assert lab.run(PrecisionUnderflow(), readings(lab, 0.0, **tiny | {"lr": 5e-7})) == []
    assert lab.run(PrecisionUnderflow(), readings(lab, 0.0, update_precision=7.8e-3, **tiny | {"lr": 5e-7}))
    assert lab.run(PrecisionUnderflow(), readings(lab, 0.0, update_precision=7.8e-3, **tiny | {"lr": 5e-8})) == []
