"""Inference is tried again only where it can pass, and what is joined is what the whole batch would have given."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import seismograd as sg
from seismograd.recovery import inference

Pair = namedtuple("Pair", "output hidden")


class Small(nn.Module):
    """Has room for so many samples; `give` makes the output."""

    def __init__(self, room: int, give: Any = lambda x: x * 2) -> None:
        super().__init__()
        self.room, self.give, self.sizes = room, give, []

    def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
        self.sizes.append(len(x))
        if len(x) > self.room:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return self.give(x, *more, **named)


def test_the_batch_is_cut_until_it_fits() -> None:
    x, model = torch.randn(10, 3), Small(3)
    result = sg.safe_inference(model, x)
    assert result.success
    assert result
    assert torch.equal(result.data, x * 2)
    assert result.attempts == 3
    assert result.batch_size == 2
    assert model.sizes == [10, 4, 2, 2, 2, 2, 2]
    assert len(result.history) == 2
    assert "attempt 1: RuntimeError: CUDA out of memory" in result.history[0]
    assert "parts of at most 5" in result.history[0]


def test_what_was_computed_is_not_computed_again() -> None:
    class Leaking(Small):
        """Has less room each time."""

        def forward(self, x: Tensor, *more: Any, **named: Any) -> Any:
            self.room -= 2
            return super().forward(x, *more, **named)

    x, model = torch.randn(8, 2), Leaking(8)
    result = sg.safe_inference(model, x)
    assert result.success is False
    assert sg.safe_inference(Leaking(12), x).success


@dataclass
class Output:
    logits: Tensor
    hidden: tuple[Tensor, Tensor]
    loss: Tensor | None = None


OUTPUTS: dict[str, Any] = {
    "tuple": lambda x: (x, x + 1),
    "dict": lambda x: {"a": x, "b": [x.sum(1)]},
    "named": lambda x: Pair(x, x.unsqueeze(1)),
    "dataclass": lambda x: Output(x, (x, -x)),
    "second dimension": lambda x: (x, torch.stack([x, x])),
    "constant": lambda x: (x, torch.arange(3)),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_of_any_structure_are_joined(kind: str) -> None:
    x = torch.randn(7, 3)
    result = sg.safe_inference(Small(3, OUTPUTS[kind]), x)
    assert result.success, result.error_message
    expected = OUTPUTS[kind](x)
    assert type(result.data) is type(expected)
    ours, theirs = (inference.tensors_in(each) for each in (result.data, expected))
    assert [path for path, _ in ours] == [path for path, _ in theirs]
    assert all(torch.equal(one, other) for (_, one), (_, other) in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(
    "given",
    [
        (torch.arange(6.0).reshape(6, 1), torch.arange(6.0).reshape(6, 1), torch.tensor(3.0)),
        {"x": torch.arange(6.0).reshape(6, 1), "y": torch.arange(6.0).reshape(6, 1), "scale": torch.tensor(3.0)},
    ],
    ids=["arguments", "keywords"],
)
def test_inputs_of_any_structure_are_cut(given: Any) -> None:
    result = sg.safe_inference(Small(2, lambda x, y, scale: (x + y) * scale), given)
    assert torch.equal(result.data, torch.arange(6.0).reshape(6, 1) * 6)


@pytest.mark.parametrize("give", [lambda x: x.sum(), lambda x: (x, float(x.sum())), lambda x: x.sum(0), lambda x: 1.0])
def test_what_cannot_be_joined_is_refused(give: Any) -> None:
    result = sg.safe_inference(Small(4, give), torch.arange(16.0).reshape(8, 2))
    assert not result.success
    assert result.data is None
    assert "did not fit at once, and" in str(result.error_message)


def test_a_single_sample_that_does_not_fit_ends_it() -> None:
    model = Small(0)
    result = sg.safe_inference(model, torch.randn(2, 2), max_retries=9)
    assert not result.success
    assert model.sizes == [2, 1]
    assert "a single sample" in str(result.error_message)
    scalar = sg.safe_inference(Small(0, None), (torch.tensor(1.0),))
    assert not scalar.success
    assert scalar.attempts == 1


def test_retries_are_limited() -> None:
    model = Small(1)
    result = sg.safe_inference(model, torch.randn(64, 2), max_retries=2)
    assert not result.success
    assert result.attempts == 3
    assert model.sizes == [64, 22, 13]
    assert sg.safe_inference(Small(1), torch.randn(64, 2), max_retries=0).attempts == 1
    with pytest.raises(ValueError, match="max_retries is -1"):
        sg.safe_inference(model, torch.randn(2, 2), max_retries=-1)


def test_a_device_that_stumbles_is_tried_again_after_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(inference, "sleep", waits.append)

    class Busy(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            if self.calls < 3:
                raise RuntimeError("CUDA error: unspecified launch failure")
            return x

    x = torch.randn(4, 2)
    result = sg.safe_inference(Busy(), x)
    assert result.success
    assert result.data is x
    assert result.attempts == 3
    assert waits == [0.05, 0.1]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        TypeError("out of memory"),
        RuntimeError("CUDA error: device-side assert triggered"),
        KeyError("x"),
        NotImplementedError(),
    ],
)
def test_nothing_else_is_tried_again(error: Exception) -> None:
    class Wrong(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            raise error

    model = Wrong()
    result = sg.safe_inference(model, torch.randn(4, 2))
    assert not result.success
    assert model.calls == result.attempts == 1
    assert type(error).__name__ in str(result.error_message)
    assert result.history == ()


def test_flags_and_grad_mode_are_put_back() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.9), nn.BatchNorm1d(3))
    model[2].eval()
    x = torch.randn(4, 3)
    result = sg.safe_inference(model, x, evaluate=True)
    assert not result.data.requires_grad
    assert torch.allclose(result.data, model[0](x).detach(), atol=1e-4), "dropout is off"
    assert [module.training for module in model] == [True, True, False]
    assert torch.is_grad_enabled()
    sg.safe_inference(model, torch.randn(4, 9), evaluate=True)
    assert model.training
    with torch.no_grad():
        sg.safe_inference(model, x)
        assert not torch.is_grad_enabled()


def test_it_is_said_where_parts_differ_from_the_whole() -> None:
    class Normed(Small):
        def __init__(self) -> None:
            super().__init__(4)
            self.norm, self.dropout = nn.BatchNorm1d(2), nn.Dropout(0.5)
            self.give = lambda x: self.dropout(self.norm(x))

    x = torch.randn(8, 2)
    notes = sg.safe_inference(Normed(), x).notes
    assert "norm normalises over the batch" in notes[0]
    assert "dropout is on" in notes[1]
    assert sg.safe_inference(Normed(), x, evaluate=True).notes == ()
    assert sg.safe_inference(Normed(), x[:4]).notes == (), "the whole batch fitted"


def test_a_device_that_is_not_there_is_a_result() -> None:
    result = sg.safe_inference(nn.Linear(2, 2), torch.randn(2, 2), device="xla:7")
    assert not result.success
    assert result.attempts == 1


def test_what_takes_time_first_is_told() -> None:
    """Nobody can see from the outside whether (5, 10, 3) is 5 samples or 10."""

    class Recurrent(Small):
        def __init__(self, batch_first: bool) -> None:
            super().__init__(4, lambda x: self.cell(x)[0])
            self.cell = nn.GRU(3, 3, 2, dropout=0.1, batch_first=batch_first)

    x = torch.randn(8, 6, 3)
    notes = sg.safe_inference(Recurrent(False), x).notes
    assert "dropout is on" in notes[0]
    assert "cell has batch_first=False" in notes[1]
    assert sg.safe_inference(Recurrent(True), x, evaluate=True).notes == ()
