"""What can be done about an error is done, recorded, and nothing else is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import seismograd as sg
from seismograd.recovery import errors


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    yield
    assert errors._registered == [], "a test left a handler behind"


@pytest.fixture
def model() -> nn.Module:
    model = nn.Linear(3, 2)
    model(torch.randn(4, 3)).sum().backward()
    return model


def real_error(code: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        code()
    return caught.value


def has_gradients(model: nn.Module) -> bool:
    return any(p.grad is not None and bool(p.grad.any()) for p in model.parameters())


@pytest.mark.parametrize(
    "error",
    [RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), torch.OutOfMemoryError("no"), MemoryError()],
)
def test_memory_is_freed(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[bool] = []
    monkeypatch.setattr(errors, "free_memory", lambda: freed.append(True))
    assert sg.recovery_strategy(error, {}) is True
    assert freed == [True]


def test_gradients_are_zeroed_where_there_are_any(model: nn.Module) -> None:
    assert sg.recovery_strategy(RuntimeError("bad gradient"), {}) is False, "nobody's gradients"
    assert has_gradients(model)
    assert sg.recovery_strategy(RuntimeError("bad gradient"), {"model": model}) is True
    assert not has_gradients(model)


def test_those_of_an_optimizer_too(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.weight.grad.fill_(float("nan"))
    with pytest.raises(RuntimeError) as caught:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    assert sg.recovery_strategy(caught.value, {"optimizer": optimizer})
    assert not has_gradients(model)


def test_what_anomaly_mode_raises_is_of_gradients(model: nn.Module) -> None:
    x = torch.zeros(3, requires_grad=True)
    with pytest.raises(RuntimeError) as caught, pytest.warns(UserWarning, match="Anomaly|Error detected"):  # noqa: SIM117
        with torch.autograd.detect_anomaly():
            (torch.sqrt(x) * 0).sum().backward()
    assert "returned nan values" in str(caught.value)
    assert sg.recovery_strategy(caught.value, {"model": model})
    assert not has_gradients(model)


@pytest.mark.parametrize("error", [ValueError("the input holds 3 NaN values"), FloatingPointError("loss is inf")])
def test_a_bad_batch_is_skipped(error: Exception, model: nn.Module) -> None:
    context = {"model": model}
    assert sg.recovery_strategy(error, context) is True
    assert context["skip_batch"] is True
    assert not has_gradients(model)


def test_what_our_own_guard_raises_is_a_bad_batch() -> None:
    assert sg.recovery_strategy(real_error(lambda: sg.validate_model_input(torch.full((2, 2), float("nan")))), {})


def mistakes() -> Iterator[Any]:
    x = torch.ones(3, requires_grad=True)
    yield lambda: torch.ones(3).sum().backward()
    yield lambda: (x * 2).exp().backward(None)
    yield lambda: nn.Linear(3, 2)(torch.ones(4))
    yield lambda: x.add_(1)
    yield lambda: [loss.backward() for loss in [x.exp().sum()] * 2]
    yield lambda: (x * 2).sum().backward(torch.ones(7))
    yield lambda: setattr(x, "grad", torch.ones(7))
    yield x.numpy
    yield lambda: torch.ones(3).register_hook(print)
    yield lambda: setattr(x, "grad", torch.ones(3, dtype=torch.int))
    yield lambda: float("gradient")
    yield lambda: {}["nan"]
    yield lambda: torch.nan_of_something
    yield lambda: nn.Linear(3, 2, gradient=True)


@pytest.mark.parametrize("code", list(mistakes()))
def test_mistakes_in_the_code_are_not_recovered_from(code: Any, model: nn.Module) -> None:
    error = real_error(code)
    assert sg.recovery_strategy(error, {"model": model}) is False, str(error)
    assert has_gradients(model)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("something else"),
        ValueError("expected the gradient penalty as a tensor of shape (2, 3)"),
        RuntimeError("Attempting to unscale FP16 gradients."),
        RuntimeError("the financial module of banana failed"),
        KeyError("gradient"),
    ],
)
def test_a_word_alone_does_not_do(error: Exception, model: nn.Module) -> None:
    assert sg.recovery_strategy(error, {"model": model}) is False
    assert has_gradients(model)


def test_every_recovery_is_on_record(model: nn.Module, caplog: pytest.LogCaptureFixture) -> None:
    debugger, system = sg.PyTorchDebugger(), sg.ErrorHandlingDebuggingSystem()
    notes: list[tuple[Any, ...]] = []

    class Watch:
        def note(self, event_type: str, message: str, level: str = "info", **data: Any) -> None:
            notes.append((event_type, message, level, data))

    context = {"model": model, "debugger": debugger, "error_system": system, "watch": Watch()}
    with caplog.at_level(logging.WARNING, "seismograd.recovery"):
        sg.recovery_strategy(RuntimeError("bad gradient"), context)
        sg.recovery_strategy(KeyError("x"), context)
    assert "recovered from RuntimeError: bad gradient: gradients were zeroed" in caplog.text
    assert [event["event_type"] for event in debugger.debug_events] == ["recovery", "recovery_failed"]
    assert debugger.debug_events[0]["data"]["action"] == "gradients were zeroed"
    assert [str(record.severity) for record in system.error_tracker.errors] == ["warning", "error"]
    assert system.error_tracker.errors[0].context == {"recovery": "gradients were zeroed", "recovered": True}
    assert [note[0] for note in notes] == ["recovery", "recovery_failed"]
    assert notes[0][2] == "warning"


def test_a_listener_that_fails_does_not_stop_a_recovery() -> None:
    class Broken:
        def log_debug_event(self, *_: Any) -> None:
            raise OSError("disk full")

    with pytest.warns(RuntimeWarning, match="could not be told: OSError: disk full"):
        assert sg.recovery_strategy(RuntimeError("CUDA out of memory"), {"debugger": Broken()})


class LostConnectionError(Exception):
    pass


def test_handlers_of_the_users_own_come_first(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[str] = []

    def reconnect(error: Exception, context: Any) -> bool:
        asked.append(f"{error} {context['host']}")
        return True

    def declines(_error: Exception, _context: Any) -> bool:
        asked.append("declines")
        return False

    error = LostConnectionError("gone")
    assert sg.recovery_strategy(error, {}) is False
    with sg.register_recovery(LostConnectionError, reconnect), sg.register_recovery("gone", declines):
        assert sg.recovery_strategy(error, {"host": "h"}) is True
    assert asked == ["declines", "gone h"], "the last one is asked first"
    assert "reconnect handled it" in caplog.text
    assert sg.recovery_strategy(error, {"host": "h"}) is False, "they were removed"


def test_a_handler_for_a_predicate_may_take_over_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    def fails(_error: Exception, _context: Any) -> bool:
        raise LookupError("not again")

    registration = sg.register_recovery(lambda error: len(error.args) == 1, fails, name="the failing one")
    try:
        assert sg.recovery_strategy(RuntimeError("CUDA out of memory"), {}) is True, "what is built in still helps"
        assert "the failing one failed itself: not again" in caplog.text
    finally:
        registration.remove()
        registration.remove()


def test_mistakes_in_registering_are_told() -> None:
    with pytest.raises(TypeError, match="when is 3"):
        sg.register_recovery(3, print)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every message"):
        sg.register_recovery("", print)
    with pytest.raises(TypeError, match="handler is 'x'"):
        sg.register_recovery(ValueError, "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not an exception"):
        sg.recovery_strategy("boom", {})  # type: ignore[arg-type]
