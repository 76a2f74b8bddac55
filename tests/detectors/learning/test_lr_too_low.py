import numpy as np

from seismograd.detectors.learning.lr_too_low import LrTooLow


def readings(lab, losses, ratio=1e-7, lr=1e-7, **measures):
    rates = lr if np.ndim(lr) else [lr] * len(losses)
    return [
        lab.reading(20 * at, loss=loss, lr=rate, update_ratio=ratio, update_norm=5 * ratio, **measures)
        for at, (loss, rate) in enumerate(zip(losses, rates, strict=True))
    ]


def test_fires_and_names_a_better_rate(lab):
    detector = LrTooLow()
    for reading in (made := readings(lab, [2.3] * 12)):
        reading.tensors["update"].columns["norm"][1::2] = 1e-9
    findings = lab.run(detector, made)
    assert findings[0].step == 100
    assert findings[0].severity == "warning"
    assert findings[0].evidence["suggested_lr"] == 1e-3


def quiet(made):
    for reading in made:
        reading.tensors["update"].columns["norm"][1::2] = 1e-9
    return made


def test_silent_when_the_loss_comes_down(lab):
    assert lab.run(LrTooLow(), quiet(readings(lab, np.linspace(2.3, 2.0, 20)))) == []


def test_batch_noise_does_not_hide_it(lab):
    for seed in range(5):
        losses = 1.7 * (1 + np.random.default_rng(seed).normal(0, 0.06, 40))
        assert lab.run(LrTooLow(), quiet(readings(lab, losses)))


def test_fresh_weights_have_further_to_go(lab):
    made = quiet(readings(lab, [2.3] * 12, ratio=2e-6, lr=1e-6, parameter_gain=0.75))
    assert lab.run(LrTooLow(), made) == []
    for reading in made:
        reading.tensors["parameter"].columns["std"][::2] = 0.5774 / 8
        reading.tensors["parameter"].columns["gain"][::2] = 0.5774
    assert lab.run(LrTooLow(), made)


def test_silent_in_warm_up_and_at_the_end_of_a_decay(lab):
    assert lab.run(LrTooLow(), quiet(readings(lab, [2.3] * 15, lr=np.linspace(1e-9, 1e-6, 15)))) == []
    assert lab.run(LrTooLow(), quiet(readings(lab, [2.3] * 20, lr=[1e-3] * 3 + [1e-7] * 17))) == []


def test_silent_when_there_is_no_gradient_to_use(lab):
    assert lab.run(LrTooLow(), quiet(readings(lab, [2.3] * 20, update_gradient=1e-6))) == []


def test_silent_on_a_usual_fine_tuning_rate(lab):
    assert lab.run(LrTooLow(), quiet(readings(lab, [2.3] * 20, ratio=5e-5, lr=1e-6, parameter_gain=0.75))) == []


def test_a_warm_up_that_does_not_end(lab):
    made = quiet(readings(lab, [2.3] * 20, lr=np.linspace(1e-9, 1e-6, 20)))
    findings = lab.run(LrTooLow(), made)
    assert findings[0].step == 300
    assert "still being warmed up" in findings[0].message


def test_fresh_weights_that_have_not_come_anywhere(lab):
    slow = {"ratio": 4e-6, "lr": 1e-5, "update_gradient": 0.3}
    assert lab.run(LrTooLow(), quiet(readings(lab, [0.27] * 12, **slow)))[0].step == 100
    assert lab.run(LrTooLow(), quiet(readings(lab, [0.27] * 12, **slow, parameter_gain=0.75))) == []
    assert lab.run(LrTooLow(), quiet(readings(lab, np.linspace(0.27, 0.24, 12), **slow))) == []
    assert lab.run(LrTooLow(path=1e-4), quiet(readings(lab, [0.27] * 12, **slow))) == []
    assert lab.run(LrTooLow(), quiet(readings(lab, [0.27] * 12, **slow | {"ratio": 4e-4}))) == []


def test_on_its_limit(lab):
    made = quiet(readings(lab, [2.3] * 12, parameter_gain=0.75))
    assert lab.run(LrTooLow(moved=1e-7), made) == []
    assert lab.run(LrTooLow(moved=1.01e-7), made)
    assert lab.run(LrTooLow(), made[:5]) == []


def test_a_model_of_embeddings_alone(lab):
    def made(std):
        readings_ = quiet(readings(lab, [2.3] * 12, ratio=2e-6, lr=1e-6))
        for reading in readings_:
            table = reading.tensors["parameter"]
            table.columns["gain"][:] = np.nan
            table.columns["std"][:] = std
        return readings_

    assert lab.run(LrTooLow(), made(0.1))
    assert lab.run(LrTooLow(), made(0.137)) == []  # they were trained before
