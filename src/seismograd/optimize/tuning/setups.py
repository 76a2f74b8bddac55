"""What a training step takes, as a copy of the user's own, which a variant may change as it likes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from seismograd import patches
from seismograd.costs import cost
from seismograd.learning_rate import put_back
from seismograd.preflight.flight import quietly
from seismograd.preflight.trial import CannotCheckError, Trial
from seismograd.replay.numbers import mapped, tensors_in
from seismograd.replay.rewind import Rewind
from seismograd.replay.surroundings import Randomness

PRECISIONS = {"high": torch.float16, "medium": torch.bfloat16}
"""What matrices of float32 may be multiplied in; TF32 has as many bits as float16."""

_MOST_BATCHES = 8
_MOST_BYTES = 2**28
"""So much of the data is kept in memory, so that all variants get the same."""


@dataclass
class Setup:
    """A copy of all that a step takes. A variant sets what it changes; `step` is then the user's loop with it."""

    model: Any
    """What the loop calls."""
    loss_fn: Callable[..., Any] | None
    optimizer: Optimizer
    batches: list[Any]
    """In memory, the same for all variants."""
    loader: DataLoader[Any] | None = None
    """Where the batches came from, if that was a `DataLoader`."""
    autocast: torch.dtype | None = None
    scaler: Any = None
    channels_last: bool = False
    threads: int | None = None
    precision: str | None = None
    trained: Any = None
    """The plain model: its parameters are those that are trained, however `model` wraps them."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def dtypes(self) -> list[torch.dtype]:
        """The narrower types that it is set to compute in, by whatever set it."""
        set_to = (self.autocast, PRECISIONS.get(self.precision or ""))
        return [dtype for dtype in set_to if dtype is not None]

    def loss(self, batch: Any) -> Tensor:
        """The loss of a batch."""
        if self.channels_last:
            batch = mapped(batch, last)
        with self._casting():
            loss: Tensor = cost(self.model, self.loss_fn, batch)
        return loss

    def step(self, batch: Any) -> Tensor:
        """One step of training; the loss stays on the device."""
        optimizer = self.optimizer
        if isinstance(optimizer, torch.optim.LBFGS):  # it evaluates by itself

            def closure() -> Any:
                optimizer.zero_grad()
                value = self.loss(batch)
                value.backward()  # type: ignore[no-untyped-call]
                return value.detach()

            value: Tensor = optimizer.step(closure)  # type: ignore[no-untyped-call]
            return value
        optimizer.zero_grad()
        loss = self.loss(batch)
        if self.scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(optimizer)
            self.scaler.update()
        return loss.detach()

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """The settings of torch's that it changes, while it lasts."""
        threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
        try:
            if self.threads is not None:
                torch.set_num_threads(self.threads)
            if self.precision is not None:
                torch.set_float32_matmul_precision(self.precision)
            yield
        finally:
            if self.threads is not None:
                torch.set_num_threads(threads)
            if self.precision is not None:
                torch.set_float32_matmul_precision(precision)

    def _casting(self) -> AbstractContextManager[Any]:
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.autocast)


class Bench:
    """The user's model, loss, optimizer and batches: every variant gets a copy of them as they were."""

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[..., Any] | None,
        optimizer: Optimizer,
        batches: Sequence[Any],
        loader: DataLoader[Any] | None = None,
    ) -> None:
        self.model, self.loss_fn, self.optimizer, self.loader = model, loss_fn, optimizer, loader
        self.device = next((one.device for one in model.parameters()), torch.device("cpu"))
        self.batches = [placed(batch, self.device) for batch in batches]
        self.randomness = Randomness.now()

    def setup(self) -> Setup:
        """A copy of its own, and the generators as they were at the start."""
        self.randomness.restore()
        copies: dict[int, Any] = {}
        model, loss_fn, optimizer = copy.deepcopy((self.model, self.loss_fn, self.optimizer), copies)
        for name in vars(self.optimizer).keys() - vars(optimizer).keys():  # LBFGS leaves out some of its own
            setattr(optimizer, name, copy.deepcopy(getattr(self.optimizer, name), copies))
        if not model.training:  # parts that stand in eval mode in a model in train mode were meant to
            model.train()
        self.randomness.restore()  # a model's own way to be copied may draw
        batches = [mapped(batch, _copied) for batch in self.batches]  # a model may change its input
        return Setup(model, loss_fn, optimizer, batches, self.loader, trained=model, device=self.device)

    def check(self) -> None:
        """That copies stand alone; otherwise an error that says what to do."""
        trial = Trial(self.model, self.batches[0], self.loss_fn, self.optimizer, None)
        try:
            trial.on_a_copy()
        except CannotCheckError as error:
            with trial.aside():  # what is wrong with the loop itself is said as it is
                self_made = trial.loss()
                self_made.backward()
            raise ValueError(
                f"the variants are tried on copies, and {error}: give a model that can be copied, and a loss_fn that"
                " uses the model it is given"
            ) from None


def kept(batches: Any, seconds: float) -> list[Any]:
    """The first few batches, as many as fit into some memory and some time."""
    began, size, found = monotonic(), 0, list[Any]()
    for batch in islice(iter(batches), _MOST_BATCHES):
        if not tensors_in(batch):
            raise TypeError(
                f"batches holds a {type(batch).__name__} without a tensor: give what the loop gets, such as a list of"
                " (x, y) or a DataLoader"
            )
        found.append(batch)
        size += sum(one.nbytes for _, one in tensors_in(batch))
        if size > _MOST_BYTES or monotonic() - began > seconds:
            break
    if not found:
        raise ValueError("batches is empty: give at least one batch")
    return found


def placed(batch: Any, device: torch.device) -> Any:
    """The batch where the model is."""
    if all(one.device == device for _, one in tensors_in(batch)):
        return batch
    return mapped(batch, lambda tensor: tensor.to(device, non_blocking=True))


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def last(tensor: Tensor) -> Tensor:
    """Images with their channels last in memory; anything else as it is."""
    if tensor.ndim == 4 and tensor.is_floating_point():
        return tensor.to(memory_format=torch.channels_last)
    return tensor


def rebuilt(loader: DataLoader[Any], **changes: Any) -> DataLoader[Any]:
    """The same loader with something changed: dataset, sampler and collation are the user's."""
    options: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        "multiprocessing_context": loader.multiprocessing_context if loader.num_workers else None,
        "generator": loader.generator,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
    }
    if loader.batch_size is not None:
        options |= {"batch_size": loader.batch_size, "sampler": loader.sampler, "drop_last": loader.drop_last}
    elif loader.batch_sampler is not None:
        options["batch_sampler"] = loader.batch_sampler
    else:
        options |= {"batch_size": None, "sampler": loader.sampler}
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        options.pop("sampler", None)
    options |= changes
    if not options["num_workers"]:
        options |= {"prefetch_factor": None, "persistent_workers": False, "multiprocessing_context": None}
        options["timeout"] = 0
    return DataLoader(loader.dataset, **options)


@contextmanager
def aside(model: nn.Module, optimizer: Optimizer, loss_fn: Any, batches: Any) -> Iterator[None]:
    """Trials happen here: nobody who watches hears of them, and afterwards everything of the user's is as it was."""
    with ExitStack() as stack:
        if patches.listeners():
            stack.enter_context(patches.apart())
        stack.enter_context(quietly())
        stack.enter_context(settings_put_back())
        stack.enter_context(Rewind([model, *_modules_of(loss_fn)]))
        stack.enter_context(put_back(model, optimizer, loss_fn, batches))
        yield


def _modules_of(loss_fn: Any) -> list[nn.Module]:
    """The loss if it is a module, and the modules that it closes over, such as a teacher."""
    cells = list(getattr(loss_fn, "__closure__", None) or ())
    held = [loss_fn, getattr(loss_fn, "__self__", None), *getattr(loss_fn, "args", ())]
    with suppress(ValueError):  # a cell that is empty as yet
        held += [cell.cell_contents for cell in cells]
    return [one for one in held if isinstance(one, nn.Module)]


@contextmanager
def settings_put_back() -> Iterator[None]:
    """What variants may change for the whole process, as it was: also what a variant of the user's sets."""
    before = (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.is_anomaly_enabled(),
    )
    flags = [
        (torch.backends.cudnn, "benchmark"),
        (torch.backends.cudnn, "deterministic"),
        (torch.backends.cudnn, "enabled"),
        (torch.backends.mkldnn, "enabled"),
    ]
    values = [getattr(owner, name) for owner, name in flags]
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        try:
            yield
        finally:
            threads, precision, dtype, deterministic, warn_only, anomalies = before
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            if torch.get_float32_matmul_precision() != precision:
                torch.set_float32_matmul_precision(precision)
            torch.set_default_dtype(dtype)
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
            torch.autograd.set_detect_anomaly(anomalies)
            for (owner, name), value in zip(flags, values, strict=True):
                if getattr(owner, name) != value:
                    setattr(owner, name, value)
