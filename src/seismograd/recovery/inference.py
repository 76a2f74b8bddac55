"""Inference that survives what can pass: too little memory for the whole batch, and a device that stumbles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from time import sleep
from typing import Any

import torch
from torch import Tensor, nn

from seismograd.costs import call
from seismograd.memory.exhaustion import is_out_of_memory
from seismograd.recovery.recording import free_memory, logger
from seismograd.replay.numbers import mapped, tensors_in

_TRANSIENT = re.compile(
    r"launch failure|launch timed out|launch failed|busy or unavailable|device is busy|device busy"
    r"|CUBLAS_STATUS_(?:NOT_INITIALIZED|EXECUTION_FAILED)|CUDNN_STATUS_(?:NOT_INITIALIZED|EXECUTION_FAILED)",
    re.IGNORECASE,
)
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0


@dataclass(frozen=True)
class InferenceResult:
    """What an inference gave, or why it did not, and what was tried."""

    success: bool
    data: Any = None
    error_message: str | None = None
    attempts: int = 1
    batch_size: int | None = None
    """How many samples were computed at once, at most, in the end; `None` where there is no batch."""
    history: tuple[str, ...] = ()
    """What each attempt that failed met, and what was done about it."""
    notes: tuple[str, ...] = ()
    """What may make the result another than that of the whole batch."""

    def __bool__(self) -> bool:
        return self.success


def safe_inference(
    model: nn.Module,
    input_data: Any,
    device: torch.device | str | None = None,
    max_retries: int = 3,
    *,
    evaluate: bool = False,
) -> InferenceResult:
    """The model's output for `input_data`, without gradients; an error is a result.

    Out of memory: the batch is halved, down to single samples, and the parts are joined. A device that was busy or
    failed to launch: once more, after a wait. Nothing else is tried again: a wrong shape stays wrong.

    - `input_data`: a tensor, a tuple of arguments, a dict of keywords; what has the batch's size first is cut.
    - `device`: where it is computed; where the model is, if left out.
    - `max_retries`: so many attempts after the first.
    - `evaluate`: in evaluation mode, whatever the model's is; its flags are put back.
    """
    if isinstance(max_retries, bool) or not isinstance(max_retries, int) or max_retries < 0:
        raise ValueError(f"max_retries is {max_retries!r}: it takes how many attempts may follow the first, 0 or more")
    flags = [(module, module.training) for module in model.modules()]
    try:
        with torch.no_grad():
            if evaluate:
                model.eval()
            return _Inference(model, max_retries).run(input_data, device)
    finally:
        for module, flag in flags:
            module.training = flag


class CannotJoinError(ValueError):
    """Outputs of parts of a batch that do not make up that of the whole."""


class _Inference:
    def __init__(self, model: nn.Module, max_retries: int) -> None:
        self.model, self.left = model, max_retries
        self.attempts = 1
        self.history: list[str] = []
        self.notes: list[str] = []

    def run(self, given: Any, device: torch.device | str | None) -> InferenceResult:
        try:
            given = self._placed(given, device)
        except Exception as error:
            return self._failed(_said(error))
        batch = _batch_of(given)
        size = batch
        parts: list[tuple[Any, int]] = []
        at = 0
        while True:
            failure = None
            try:
                for part, count in _parts(given, batch, at, size):
                    parts.append((call(self.model, part), count))
                    at += count
            except Exception as error:
                failure = _said(error), is_out_of_memory(error), _is_transient(error)
            # what the error kept alive is gone from here on
            if failure is None:
                return self._joined(parts, size)
            message, exhausted, transient = failure
            if not (exhausted or transient):
                return self._failed(message, size)
            if not self.left:
                return self._failed(f"{message} (after {self.attempts} attempts: {'; '.join(self.history)})", size)
            if exhausted:
                if size is None or size <= 1:
                    what = "a single sample" if size == 1 else "an input without a batch that could be cut"
                    return self._failed(f"{message} (with {what}: there is nothing smaller to try)", size)
                size = size // 2
            self._again(message, size, exhausted)

    def _again(self, message: str, size: int | None, exhausted: bool) -> None:
        wait = 0.0
        if exhausted:
            free_memory()
            what = f"{message}: memory was freed, and the batch is cut into parts of at most {size}"
        else:
            wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (self.attempts - 1))
            what = f"{message}: once more after {wait:.2g} s"
        self.history.append(f"attempt {self.attempts}: {what}")
        logger.warning("inference: %s", self.history[-1])
        sleep(wait)
        self.attempts, self.left = self.attempts + 1, self.left - 1

    def _placed(self, given: Any, device: torch.device | str | None) -> Any:
        held = next(chain(self.model.parameters(), self.model.buffers()), None)
        target = torch.device(device) if device is not None else (None if held is None else held.device)
        if target is None or target.type == "meta":
            return given
        if held is not None and not _same(held.device, target):
            self.model.to(target)
            self.notes.append(f"the model was moved from {held.device} to {target}")
        return mapped(given, lambda tensor: tensor if _same(tensor.device, target) else tensor.to(target))

    def _joined(self, parts: list[tuple[Any, int]], size: int | None) -> InferenceResult:
        if len(parts) == 1:
            data = parts[0][0]
        else:
            try:
                data = joined([output for output, _ in parts], [count for _, count in parts])
            except CannotJoinError as error:
                return self._failed(f"the batch did not fit at once, and {error}", size)
            self.notes += _mixing(self.model)
            size = max(count for _, count in parts)
        return InferenceResult(True, data, None, self.attempts, size, tuple(self.history), tuple(self.notes))

    def _failed(self, message: str, size: int | None = None) -> InferenceResult:
        logger.error("inference failed: %s", message)
        return InferenceResult(False, None, message, self.attempts, size, tuple(self.history), tuple(self.notes))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _is_transient(error: Exception) -> bool:
    return isinstance(error, RuntimeError) and _TRANSIENT.search(str(error)) is not None


def _same(one: torch.device, other: torch.device) -> bool:
    return one.type == other.type and (other.index is None or one.index == other.index)


def _batch_of(given: Any) -> int | None:
    """The samples of a batch: the first size of its first tensor that has one."""
    return next((int(tensor.shape[0]) for _, tensor in tensors_in(given) if tensor.ndim), None)


def _parts(given: Any, batch: int | None, at: int, size: int | None) -> Iterator[tuple[Any, int]]:
    """What is left of a batch in parts of at most this size; the whole in one."""
    if batch is None or size is None or (at == 0 and size == batch):
        yield given, batch or 0
        return
    for count in _counts(batch - at, size):

        def cut(tensor: Tensor, first: int = at, last: int = at + count) -> Tensor:
            return tensor[first:last] if tensor.ndim and tensor.shape[0] == batch else tensor

        yield mapped(given, cut), count
        at += count


def _counts(samples: int, size: int) -> list[int]:
    """Parts that are about equal, and not quite: so it shows which dimension of an output belongs to the samples."""
    number = -(-samples // size)
    if samples % number == 0 and samples // (number + 1) > 1:
        number += 1
    return [samples // number + (at < samples % number) for at in range(number)]


def joined(outputs: list[Any], counts: list[int]) -> Any:
    """The output of a whole batch from those of its parts, which have so many samples; `CannotJoinError` if it cannot
    be made of them."""
    leaves = [tensors_in(output) for output in outputs]
    paths = [[path for path, _ in each] for each in leaves]
    if not paths[0] or any(each != paths[0] for each in paths):
        raise CannotJoinError("what the model gives for parts of it holds no tensors, or others each time")
    skeletons = [mapped(output, lambda _: None) for output in outputs]
    if any(each != skeletons[0] for each in skeletons[1:]):
        raise CannotJoinError(
            "what the model gives for parts of it holds more than tensors, and other values each time"
        )
    whole = {}
    for column in zip(*leaves, strict=True):
        whole[id(column[0][1])] = _joined(column[0][0], [tensor for _, tensor in column], counts)
    return mapped(outputs[0], lambda tensor: whole[id(tensor)])


def _joined(path: str, tensors: list[Tensor], counts: list[int]) -> Tensor:
    first = tensors[0]
    if all(tensor.ndim == first.ndim for tensor in tensors):
        for dim in range(first.ndim):
            others = {(*tensor.shape[:dim], *tensor.shape[dim + 1 :]) for tensor in tensors}
            if len(others) == 1 and [tensor.shape[dim] for tensor in tensors] == counts:
                return torch.cat(tensors, dim)
    if all(tensor.shape == first.shape and torch.equal(tensor, first) for tensor in tensors):
        return first
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors[:3])
    raise CannotJoinError(
        f"the output{path} of parts with {', '.join(map(str, counts[:3]))} samples has the shapes {shapes}: it is none"
        " for each sample and cannot be joined. Give smaller batches, and put the outputs together yourself"
    )


def _mixing(model: nn.Module) -> list[str]:
    """What is said where samples of a batch have a part in each other's outputs."""
    norms = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None)
    ]
    notes = []
    if norms:
        notes.append(
            f"{norms[0] or 'the model'} normalises over the batch: outputs of parts differ from those of the whole,"
            " and its running statistics have seen each part. evaluate=True avoids it"
        )
    if any(_drops(module) for module in model.modules()):
        notes.append("dropout is on: other units were dropped than in the whole batch")
    second = [name for name, module in model.named_modules() if getattr(module, "batch_first", True) is False]
    if second:
        notes.append(
            f"{second[0] or 'the model'} has batch_first=False, and the input was cut along its first dimension: if"
            " that is time, the result is not that of the whole"
        )
    return notes


def _drops(module: nn.Module) -> bool:
    inside = isinstance(module, nn.RNNBase) and module.dropout
    return module.training and bool(inside or (isinstance(module, nn.modules.dropout._DropoutNd) and module.p))
