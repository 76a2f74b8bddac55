from seismograd.detectors.learning.update_ratio_low import UpdateRatioLow


def readings(lab, ratio, count=10, **measures):
    return [lab.reading(20 * at, update_ratio=[ratio, 1e-3, 1e-3, 1e-3], **measures) for at in range(count)]


def test_fires_on_the_layer_that_stands_still(lab):
    findings = lab.run(UpdateRatioLow(), readings(lab, 1e-9))
    assert findings[0].where.parameter == "layers.0.weight"
    assert findings[0].severity == "warning"


def test_fires_on_a_layer_whose_updates_are_rounded_away(lab):
    findings = lab.run(UpdateRatioLow(), readings(lab, 0.0, update_gradient=[1e-9, 1, 1, 1]))
    assert findings[0].where.parameter == "layers.0.weight"
    assert "rounded away" in findings[0].recommendations[1]


def test_several_rates_may_be_meant(lab):
    trained = {"lr": [1e-9, 1e-3], "parameter_gain": 0.75}
    assert lab.run(UpdateRatioLow(), readings(lab, 1e-9, **trained))[0].severity == "info"


def test_nobody_means_a_rate_that_changes_nothing(lab):
    rates = {"lr": [1e-13, 1e-3], "update_lr": [1e-13, 1e-3, 1e-3, 1e-3], "parameter_gain": 0.75}
    (finding, *_) = lab.run(UpdateRatioLow(), readings(lab, 0.0, update_changed=[0.0, 1, 1, 1], **rates))
    assert finding.severity == "warning"
    assert "group is 1e-13" in finding.message
    assert lab.run(UpdateRatioLow(), readings(lab, 1e-9, lr=[1e-9, 1e-3]))[0].severity == "warning", "fresh weights"
    rates["update_lr"] = [0.0, 1e-3, 1e-3, 1e-3]
    assert lab.run(UpdateRatioLow(), readings(lab, 0.0, update_changed=[0.0, 1, 1, 1], **rates)) == []


def test_silent_without_gradient_when_frozen_and_when_all_stand_still(lab):
    assert lab.run(UpdateRatioLow(), readings(lab, 1e-9, update_gradient=[0, 1, 1, 1])) == []
    assert lab.run(UpdateRatioLow(), readings(lab, 0.0, update_gradient=[0, 1, 1, 1])) == []
    assert lab.run(UpdateRatioLow(), [lab.reading(20 * at, update_ratio=0.0) for at in range(10)]) == []
    assert lab.run(UpdateRatioLow(), [lab.reading(20 * at, update_ratio=1e-9) for at in range(10)]) == []


def test_on_its_limit(lab):
    assert lab.run(UpdateRatioLow(), readings(lab, 1e-7)) == []
    assert lab.run(UpdateRatioLow(), readings(lab, 0.99e-7))
    assert lab.run(UpdateRatioLow(), readings(lab, 1e-9, count=5)) == []
