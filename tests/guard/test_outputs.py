"""What `detect_model_anomalies` says about outputs of all kinds, and that it leaves no trace."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import seismograd as sg


class Answers(nn.Module):
    """Answers what it was told to."""

    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        return self.answer(x)


X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def said(answer: Callable[[Tensor], Any], **limits: Any) -> list[str]:
    return sg.detect_model_anomalies(Answers(answer), X, **limits)


def with_one(value: float) -> Callable[[Tensor], Tensor]:
    def answer(x: Tensor) -> Tensor:
        out = x.clone()
        out[3, 1] = value
        return out

    return answer


def test_a_sound_model_has_none() -> None:
    assert said(lambda x: x * 100) == [], "logits have no range"
    assert said(torch.sigmoid, expected_range=(0, 1)) == []


def test_values_that_are_not_finite() -> None:
    assert said(with_one(math.nan)) == ["Model output contains NaN values: 1 of 32, first at [3, 1]"]
    assert said(with_one(math.inf)) == ["Model output contains infinite values: 1 of 32, first at [3, 1]"]
    (text,) = said(with_one(-math.inf))
    assert "all are -Inf: right if it is a mask" in text


def test_uniform_answers() -> None:
    (text,) = said(lambda x: torch.tensor([2.0, -1.0]).expand(len(x), 2))
    assert text == "Model predictions are uniform: `output` is the same for all 8 samples, to 1e-06"
    assert said(lambda x: x * 1e-8)
    assert not said(lambda x: x * 1e-8, uniform_std=1e-12)
    assert not said(lambda x: x.sum()), "one number for all is no prediction"
    model = Answers(lambda x: x.sum(1))
    assert not sg.detect_model_anomalies(model, torch.ones(8, 4)), "nothing differs in the data"
    assert not sg.detect_model_anomalies(model, X[:1]), "one sample"


def test_a_range() -> None:
    (text,) = said(lambda x: x * 10, expected_range=(0, 1))
    assert text.startswith("Model output outside expected range 0 to 1: ")
    assert f"the lowest {float(X.min() * 10):.3g}" in text


@dataclass
class Output:
    loss: Tensor
    logits: Tensor
    hidden: tuple[Tensor, ...]


@pytest.mark.parametrize(
    ("wrap", "place"),
    [
        (lambda bad: (X, bad), "[1]"),
        (lambda bad: {"features": X, "mask": X > 0, "logits": bad}, "['logits']"),
        (lambda bad: OrderedDict(hidden=X, logits=bad, loss=torch.tensor(1.0)), "['logits']"),
        (lambda bad: Output(torch.tensor(1.0), bad, (X,)), ".logits"),
        (lambda bad: Output(torch.tensor(1.0), X, (X, bad)), ".hidden[1]"),
    ],
)
def test_outputs_of_several_parts(wrap: Callable[[Tensor], Any], place: str) -> None:
    (text,) = said(lambda x: wrap(with_one(math.nan)(x)))
    assert text.startswith(f"Model output{place} contains NaN")
    assert not said(wrap)


def test_the_answer_itself_is_judged_for_uniformity() -> None:
    same = torch.zeros(8, 2)
    (text,) = said(lambda x: {"hidden": x, "logits": same})
    assert "output['logits']" in text
    assert not said(lambda x: {"logits": x, "hidden": same})


def test_transformers_outputs() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    (text,) = said(lambda x: outputs.SequenceClassifierOutput(loss=x.sum(), logits=with_one(math.nan)(x)))
    assert "output['logits'] contains NaN" in text


def test_arguments_by_name_and_in_a_row() -> None:
    class Two(nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return a - b

    assert sg.detect_model_anomalies(Two(), (X, X))
    assert sg.detect_model_anomalies(Two(), {"a": X, "b": X})
    assert not sg.detect_model_anomalies(Answers(lambda batch: batch["image"]), {"image": X})


class Busy(nn.Module):
    """Draws from every generator, and changes its buffers in every way."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count = self.count + random.random() + np.random.rand()
        out: Tensor = self.net(x)
        return out


@pytest.mark.parametrize("training", [True, False])
def test_it_leaves_no_trace(training: bool) -> None:
    model = Busy().train(training)
    model.net[1].eval()  # type: ignore[union-attr]
    modes = [module.training for module in model.modules()]
    loss = model(X).sum()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    count = model.count
    generators = torch.get_rng_state(), random.getstate(), np.random.get_state()
    sg.detect_model_anomalies(model, X)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert model.count is count
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert random.getstate() == generators[1]
    assert np.array_equal(np.random.get_state()[1], generators[2][1])  # type: ignore[index]
    assert all(parameter.grad is None for parameter in model.parameters())
    loss.backward()  # a graph from before is still good
    assert model.net[0].weight.grad is not None  # type: ignore[union-attr]


def test_a_graph_through_batch_norm_is_still_good_and_its_statistics_are() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    loss = model(X).square().sum()
    mean = model[1].running_mean.clone()  # type: ignore[union-attr, operator]
    sg.detect_model_anomalies(model, X + 5)
    assert torch.equal(model[1].running_mean, mean)  # type: ignore[arg-type]
    loss.backward()


def test_it_is_put_back_when_the_model_raises() -> None:
    model = Busy()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError):
        sg.detect_model_anomalies(model, torch.ones(8, 5))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_lazy_model_stays_lazy() -> None:
    model = nn.Sequential(nn.LazyLinear(2))
    assert sg.detect_model_anomalies(model, X) == []
    assert isinstance(model[0], nn.LazyLinear)


def test_a_watch_is_not_told() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer) as watch:
        for _ in range(3):
            optimizer.zero_grad()
            model(X).square().mean().backward()
            optimizer.step()
            sg.detect_model_anomalies(model, X * math.nan)
    assert watch.findings == []


def test_odd_outputs() -> None:
    for answer in (None, "words", torch.ones(8, device="meta"), torch.zeros(0, 2), torch.ones(8, dtype=torch.long)):
        assert said(lambda x, answer=answer: answer) == []  # type: ignore[misc]
    assert said(lambda x: with_one(math.nan)(x).half())
    assert said(lambda x: with_one(math.nan)(x).to(torch.complex64))
    assert said(lambda x: with_one(math.nan)(x).to_sparse())
