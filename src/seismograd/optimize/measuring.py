"""What an optimisation brought: bytes kept for backward, and seconds of a step, next to the model as it was."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from seismograd.amounts import number
from seismograd.costs import call
from seismograd.onlookers.nested import tensors_in
from seismograd.optimize.metrics import Account
from seismograd.optimize.models import Optimized, optimized
from seismograd.optimize.modes import OptimizationMode
from seismograd.replay.rewind import Rewind
from seismograd.replay.tracer import storage_of

_ROUNDS, _SECONDS = 15, 5.0
"""So many steps of each are timed, if there is so much time."""

_FAR = 0.05
"""Outputs that differ by more than this part of the largest are pointed out."""


def saved_bytes(model: nn.Module, run: Callable[[], Any]) -> int:
    """The bytes that autograd keeps for backward of what `run` computes, without the model's parameters and buffers.

    Each storage counts once.
    """
    known = {storage_of(one) for one in (*model.parameters(), *model.buffers())}
    held: dict[int, tuple[int, Tensor]] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided and storage_of(tensor) not in known:
            held[storage_of(tensor)] = tensor.untyped_storage().nbytes(), tensor  # kept alive: its address is its name
        return tensor

    with saved_tensors_hooks(note, _same), torch.enable_grad():
        output = run()
    total = sum(size for size, _ in held.values())
    del output
    return total


def measured(
    model: nn.Module, mode: OptimizationMode | str, sample_input: Any = None, **options: Any
) -> tuple[nn.Module, Account]:
    """A model in a mode, and what is known of it: with a sample, what that tells too."""
    fast = optimized(model, mode, **options)
    if not isinstance(fast, Optimized):
        return fast, Account(OptimizationMode.NONE, {"execution_time": 0.0, "speedup_factor": 1.0})
    if sample_input is not None:
        measure(fast, sample_input)
    return fast, fast.account


def measure(fast: Optimized, sample_input: Any) -> None:
    """Fills in what a sample tells: how far the outputs are apart, savings, speed-up. Everything is put back.

    A sample is what the model is called with: a tensor, a tuple of arguments, a dict of keywords.
    """
    model, account = fast.original, fast.account
    with Rewind([model], list(tensors_in(sample_input))):
        difference, scale = _difference(model, fast, sample_input)
        account.learn(max_difference=difference)
        if difference is not None and not difference <= _FAR * scale:
            account.note(
                f"outputs differ by {number(difference)} where the model's reach {number(scale)}: is it right?"
            )
        if model.training:
            before, after = (saved_bytes(model, partial(call, each, sample_input)) for each in (model, fast))
            account.learn(memory_savings=1 - after / before if before else 0.0)
        else:
            account.note("the model is in evaluation mode: what training would save was not measured")
        times = _interleaved(lambda: _step(model, sample_input), lambda: _step(fast, sample_input))
        was, now = (statistics.median(each) for each in times)
        account.learn(speedup_factor=was / now, execution_time=now)


def _difference(model: nn.Module, fast: Optimized, sample: Any) -> tuple[float | None, float]:
    """The largest difference of two outputs, from the same state and random numbers, and the largest output."""
    with Rewind([model]):
        if fast.account.mode.compiles and _is_random(model, sample):
            model.eval()  # compiled code draws its random numbers in another way
        outputs = [_outputs(model, each, sample) for each in (model, fast)]
    pairs = list(zip(*outputs, strict=False))
    if len(outputs[0]) != len(outputs[1]) or any(one.shape != other.shape for one, other in pairs):
        raise RuntimeError("the optimised model gives another structure than the model: its outputs do not compare")
    wide = [(one.double(), other.double()) for one, other in pairs if one.numel() and not one.is_complex()]
    if not wide:
        return None, 0.0
    return (
        max(float((one - other).abs().max()) for one, other in wide),
        max(float(one.abs().max()) for one, _ in wide),
    )


def _outputs(model: nn.Module, run: nn.Module, sample: Any) -> list[Tensor]:
    with Rewind([model]):
        return [tensor.detach() for tensor in tensors_in(call(run, sample))]


def _is_random(model: nn.Module, sample: Any) -> bool:
    """Whether two calls of a model differ."""
    with Rewind([model]), torch.no_grad():
        one, other = (list(tensors_in(call(model, sample))) for _ in range(2))
    return not all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def _step(model: nn.Module, sample: Any) -> None:
    """A forward pass, and in training a backward pass of the sum of what it gave. Gradients are its own."""
    for parameter in model.parameters():
        parameter.grad = None
    outputs = [one for one in tensors_in(call(model, sample)) if one.is_floating_point() and one.requires_grad]
    if outputs and model.training:
        torch.autograd.backward([one.float().sum() for one in outputs])


def _interleaved(*runs: Callable[[], None]) -> list[list[float]]:
    """Seconds of each, taken in turns so that a slow moment meets all of them."""
    for run in runs:
        run()  # what is done once: compiling, allocating
    times: list[list[float]] = [[] for _ in runs]
    ends = perf_counter() + _SECONDS
    for round_ in range(_ROUNDS):
        for at in range(len(runs)):
            which = (at + round_) % len(runs)
            began = perf_counter()
            runs[which]()
            _wait()
            times[which].append(perf_counter() - began)
        if perf_counter() > ends:
            break
    return times


def _wait() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def _same(tensor: Tensor) -> Tensor:
    return tensor
