from seismograd.detectors.learning.update_ratio_high import UpdateRatioHigh


def readings(lab, ratio, count=10, **measures):
    made = [lab.reading(20 * at, update_ratio=[ratio, 1e-3, 1e-3, 1e-3], **measures) for at in range(count)]
    for reading in made:
        columns = reading.tensors["update"].columns
        columns["norm"][:] = 5.0 * columns["ratio"]
    return made


def test_fires_on_the_layer_that_is_thrown_about(lab):
    findings = lab.run(UpdateRatioHigh(), readings(lab, 0.8))
    assert findings[0].where.parameter == "layers.0.weight"
    assert findings[0].severity == "warning"
    assert findings[0].step == 80


def test_silent_in_the_first_steps_and_when_all_move(lab):
    assert lab.run(UpdateRatioHigh(settle=1000), readings(lab, 0.8)) == []
    assert lab.run(UpdateRatioHigh(), [lab.reading(20 * at, update_ratio=0.8) for at in range(10)]) == []


def test_silent_on_weights_that_have_shrunk_to_nothing(lab):
    made = readings(lab, 0.8)
    for reading in made:
        reading.tensors["update"].columns["norm"][0] = 1e-6
    assert lab.run(UpdateRatioHigh(), made) == []


def test_on_its_limit(lab):
    assert lab.run(UpdateRatioHigh(), readings(lab, 0.5)) == []
    assert lab.run(UpdateRatioHigh(), readings(lab, 0.51))
    assert lab.run(UpdateRatioHigh(), readings(lab, 0.51, count=4)) == []
