"""The learning rate range test: raise the rate step by step and see where the loss falls fastest."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seismograd.costs import cost

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from torch import nn, optim

_MARGIN = 3.0  # the suggestion stays this factor below the steepest point
_CLEAR = 8.0  # a fall in units of its noise that flat curves show once in a hundred tests
_EXPLODED = 4.0  # a rise above the best loss, in units of the loss's own scale
_AGAIN = 50  # so often the curve is drawn anew, with more noise
_PROBED = 4  # so many steps show how far each layer moves


class LearningRateFinder:
    """Finds a learning rate by trying `num_steps` of them from `min_lr` to `max_lr`, evenly spaced on a log scale."""

    def __init__(self, min_lr: float = 1e-7, max_lr: float = 10.0, num_steps: int = 100) -> None:
        if not 0 < min_lr < max_lr < math.inf:
            raise ValueError(
                f"min_lr is {min_lr} and max_lr is {max_lr}: they must be finite, with 0 < min_lr < max_lr"
            )
        if num_steps < 2:
            raise ValueError(f"num_steps is {num_steps}: a range takes at least 2")
        self.min_lr, self.max_lr, self.num_steps = min_lr, max_lr, num_steps
        self.lrs: list[float] = []
        self.losses: list[float] = []
        self.suggested_lr: float | None = None
        self.interval: tuple[float, float] | None = None
        self.confidence = 0.0

    def range_test(self, train_fn: Callable[[float], float]) -> dict[str, Any]:
        """Calls `train_fn(lr)`, which trains one step and returns the loss, until the loss explodes or the range ends.

        `suggested_lr` comes with `lrs` and `losses` (the step that exploded is not among them), and with `clear`:
        whether the loss fell beyond its noise. Where it did not, `message` says so and the suggestion is a guess.
        `interval` is the range of rates at which the loss falls, from where it begins to the lowest point, or `None`.
        `confidence` says, from 0 to 1, how often the suggestion stays the same (within a factor of 3) when as much
        noise again is added to the curve.
        """
        self.lrs, self.losses, self.suggested_lr = [], [], None
        early = max(3, self.num_steps // 10)
        for lr in np.geomspace(self.min_lr, self.max_lr, self.num_steps).tolist():
            loss = float(train_fn(lr))
            if not math.isfinite(loss) or _exploded(loss, self.losses, early):
                break
            self.lrs.append(lr)
            self.losses.append(loss)
        self.suggested_lr, fault, self.interval = self._suggest(self.losses)
        self.confidence = 0.0 if fault else self._confidence()
        return {
            "suggested_lr": self.suggested_lr,
            "interval": self.interval,
            "confidence": self.confidence,
            "lrs": self.lrs,
            "losses": self.losses,
            "clear": fault is None,
            "message": fault or f"the loss falls fastest just above a learning rate of {self.suggested_lr:.1e}",
        }

    def range_test_model(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        loss_fn: Callable[..., Any] | None,
        batches: Iterable[Any],
        *,
        per_layer: bool = False,
    ) -> dict[str, Any]:
        """Runs the range test on a torch model and puts everything back, whatever happens on the way.

        A batch that is a pair `(x, y)` costs `loss_fn(model(x), y)`, others as `seismograd.costs.cost` has it. They
        are used again from the start when they run out. Parameter groups keep the ratios of their learning rates: the
        rate tested is that of the fastest. Put back are parameters, buffers, gradients, train flags, the optimizer's
        state and learning rates, and the random number generators; what else a model keeps in Python is not seen.

        `per_layer` adds a rate for each layer, by the layer's name: the one at which it moves, relative to its weights,
        as far as the middle layer does at the suggested rate, within a factor of 10 of what its group would have then.
        """
        import torch

        known = {id(parameter) for parameter in model.parameters()}
        if not any(id(parameter) in known for group in optimizer.param_groups for parameter in group["params"]):
            raise ValueError("the optimizer holds none of the model's parameters: build it from model.parameters()")
        ratios = _ratios(optimizer)
        endless = _endless(batches)

        def train(lr: float) -> float:
            for group, ratio in zip(optimizer.param_groups, ratios, strict=True):
                _set_rate(group, lr * ratio)
            batch = next(endless)

            def closure() -> Any:
                optimizer.zero_grad()
                loss = cost(model, loss_fn, batch)
                loss.backward()
                return loss.detach()

            return float(optimizer.step(closure))

        with put_back(model, optimizer, loss_fn, batches), torch.enable_grad():
            if not model.training:  # parts that stand in eval mode inside a model in train mode were meant to
                model.train()
            result = self.range_test(train)
        if per_layer:
            with put_back(model, optimizer, loss_fn, batches), torch.enable_grad():
                model.train()
                result["per_layer"] = _layer_rates(model, optimizer, train, result["suggested_lr"])
        return result

    def plot(self) -> Figure:
        """The loss over the learning rates of the last test, as a plotly figure."""
        from seismograd.reports.figures import range_figure

        if not self.losses:
            raise ValueError("there is nothing to draw yet: run range_test or range_test_model first")
        return range_figure(self.lrs, self.losses, self.suggested_lr, self.interval)

    def _confidence(self) -> float:
        """How often the suggestion is the same when as much noise again is added to the curve."""
        losses, generator = np.array(self.losses), np.random.default_rng(0)
        bends = np.abs(np.diff(losses, 2))  # of a smooth curve almost nothing
        noise = float(np.median(bends)) / (0.6745 * math.sqrt(6)) if bends.size else math.inf
        agree = 0
        for _ in range(_AGAIN):
            other, fault, _ = self._suggest(list(losses + generator.normal(0.0, noise, len(losses))))
            agree += fault is None and abs(math.log(other / self.suggested_lr)) <= math.log(3.0)  # type: ignore[operator]
        return agree / _AGAIN

    def _suggest(self, tried: Sequence[float]) -> tuple[float, str | None, tuple[float, float] | None]:
        """The learning rate to use, why it is only a guess, if it is, and the interval in which the loss falls."""
        count = len(tried)
        if count < 10:
            fault = f"the loss exploded after {count} learning rates: lower min_lr" if count < self.num_steps else None
            fault = fault or f"{count} learning rates are too few: use 10 or more"
            return min(self.min_lr * 10, self.max_lr), fault, None
        log_lrs, losses = np.log(self.lrs), _without_spikes(np.array(tried))
        half = max(2, count // 12)
        level, slope = _local_lines(log_lrs, losses, half)
        lowest = int(np.argmin(level))
        start = level[: max(1, count // 10)].mean()
        # neighbours differ by the noise alone, the curve being smooth; fitting a line to a window averages it out
        neighbours = np.diff(tried[: max(lowest + 1, count // 3, 10)])
        noise = float(np.median(np.abs(neighbours))) / (0.6745 * math.sqrt(2)) / math.sqrt(2 * half + 1)
        matters = max(_CLEAR * noise, 1e-3 * abs(start))
        if start - level[lowest] > matters:
            steepest = int(np.argmin(slope[: lowest + 1]))  # past the lowest point the loss only swings
            shown = start - max(0.02 * (start - level[lowest]), min(matters, 0.5 * (start - level[lowest])))
            begins = int(np.flatnonzero(level[: lowest + 1] <= shown)[0])
            suggested = max(self.lrs[steepest] / _MARGIN, self.min_lr)
            return suggested, None, (min(self.lrs[begins], suggested), self.lrs[lowest])
        harmful = np.flatnonzero(level > start + matters)
        harmless = self.lrs[max(0, int(harmful[0]) - 1)] if harmful.size else self.lrs[-1]
        fault = "the curve shows no clear descent: the suggestion is a guess, a tenth of what did no harm yet"
        return max(harmless / 10, self.min_lr), f"{fault}; larger batches or more steps may show one", None


def _exploded(loss: float, losses: Sequence[float], early: int) -> bool:
    """Whether the loss has left all bounds, measured by the size, the noise and the fall of the losses before it.

    Not by a multiple of the best loss, which means nothing when that is negative or zero.
    """
    if len(losses) < early:
        return False
    first, best = sorted(losses[:early]), min(losses)
    start = first[early // 2]
    scale = max(abs(start), start - best, first[-1] - first[0])
    return scale > 0 and loss - best > _EXPLODED * scale


def _without_spikes(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """The running median of five: one odd batch is no slope."""
    padded = np.pad(losses, 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)


def _local_lines(
    x: NDArray[np.float64], y: NDArray[np.float64], half: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Level and slope at each point of the straight line fitted to the points within `half` of it."""
    x, middle = x - x.mean(), float(y.mean())
    y = y - middle
    at = np.arange(len(y))
    first, last = np.maximum(0, at - half), np.minimum(len(y), at + half + 1)
    sums = np.cumsum(np.pad(np.stack([np.ones_like(x), x, y, x * x, x * y]), ((0, 0), (1, 0))), axis=1)
    count, of_x, of_y, of_xx, of_xy = sums[:, last] - sums[:, first]
    slopes = (of_xy - of_x * of_y / count) / (of_xx - of_x * of_x / count)
    return of_y / count + slopes * (x - of_x / count) + middle, slopes


def _endless(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, again and again. Those of an iterator, which can be walked only once, are kept."""
    kept: list[Any] | None = [] if iter(batches) is batches else None
    empty = True
    for batch in batches:
        empty = False
        if kept is not None:
            kept.append(batch)
        yield batch
    if empty:
        raise ValueError("batches is empty: the range test needs at least one batch")
    while True:
        yield from batches if kept is None else kept


def _layer_rates(
    model: nn.Module, optimizer: optim.Optimizer, train: Callable[[float], float], lr: float
) -> dict[str, float]:
    """For each layer the rate at which it would move as far, relative to its weights, as the middle one does."""
    import torch

    layers = {
        name: own
        for name, part in model.named_modules()
        if (own := [p for p in part.parameters(recurse=False) if p.requires_grad and p.is_floating_point()])
    }
    before = {name: [p.detach().clone() for p in own] for name, own in layers.items()}
    for _ in range(_PROBED):
        if not math.isfinite(train(lr)):
            break
    own_lr = {id(p): float(group["lr"]) for group in optimizer.param_groups for p in group["params"]}
    rates = {name: max(own_lr.get(id(p), lr) for p in own) for name, own in layers.items()}
    with torch.no_grad():
        moved = {
            name: math.hypot(*(float((p - was).norm()) for p, was in zip(own, before[name], strict=True)))
            for name, own in layers.items()
        }
        sizes = {name: math.hypot(*(float(was.norm()) for was in before[name])) for name in layers}
    ratios = {name: moved[name] / sizes[name] for name in layers if sizes[name] > 0 and 0 < moved[name] < math.inf}
    middle = float(np.median(list(ratios.values()))) if ratios else 1.0
    factors = {name: min(10.0, max(0.1, middle / ratio)) for name, ratio in ratios.items()}
    return {name: rates[name] * factors.get(name, 1.0) for name in layers}


def _ratios(optimizer: optim.Optimizer) -> list[float]:
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    fastest = max(rates)
    return [rate / fastest if fastest > 0 else 1.0 for rate in rates]


def _set_rate(group: dict[str, Any], lr: float) -> None:
    if hasattr(group["lr"], "fill_"):  # a tensor, as compiled and capturable optimizers want it
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


@contextmanager
def put_back(model: nn.Module, optimizer: optim.Optimizer, loss_fn: object, batches: object) -> Iterator[None]:
    """Everything that a training step changes, as it was before, also after an exception."""
    from torch import nn

    modules = [part for root in (model, loss_fn) if isinstance(root, nn.Module) for part in root.modules()]
    with ExitStack() as stack:
        stack.enter_context(_random_state(batches))
        stack.enter_context(_tensors(modules, optimizer))
        stack.enter_context(_optimizer(optimizer))
        flags = [(part, part.training) for part in modules]
        try:
            yield
        finally:
            for part, flag in flags:
                part.training = flag


@contextmanager
def _tensors(modules: Sequence[nn.Module], optimizer: optim.Optimizer) -> Iterator[None]:
    import torch

    held = [parameter for part in modules for parameter in part.parameters(recurse=False)]
    held += [parameter for group in optimizer.param_groups for parameter in group["params"]]
    parameters = [(each, each.grad, each.detach().clone()) for each in {id(each): each for each in held}.values()]
    buffers = [
        (part, name, buffer, buffer.clone())
        for part in modules
        for name, buffer in part.named_buffers(recurse=False, remove_duplicate=False)
    ]
    try:
        for parameter, _, _ in parameters:
            parameter.grad = None  # the gradient itself is set aside, untouched
        yield
    finally:
        with torch.no_grad():
            for parameter, gradient, value in parameters:
                parameter.copy_(value)
                parameter.grad = gradient
            for part, name, buffer, value in buffers:
                setattr(part, name, buffer.copy_(value))


@contextmanager
def _optimizer(optimizer: optim.Optimizer) -> Iterator[None]:
    import torch

    attributes = dict(vars(optimizer))
    groups = [(group, dict(group)) for group in optimizer.param_groups]
    rates = [(group["lr"], group["lr"].clone()) for group, _ in groups if isinstance(group["lr"], torch.Tensor)]
    try:
        optimizer.state = copy.copy(optimizer.state)
        for key, state in optimizer.state.items():  # the keys are the parameters themselves
            optimizer.state[key] = copy.deepcopy(state)
        yield
    finally:
        vars(optimizer).clear()
        vars(optimizer).update(attributes)
        for group, before in groups:
            group.clear()
            group.update(before)
        for rate, value in rates:
            rate.copy_(value)


@contextmanager
def _random_state(batches: object) -> Iterator[None]:
    """The generators of Python, NumPy, torch, its accelerator, and the data loader's own."""
    import torch

    owners = (batches, getattr(batches, "sampler", None))
    own = [getattr(owner, "generator", None) for owner in owners]
    generators = [(each, each.get_state()) for each in own if isinstance(each, torch.Generator)]
    device = torch.accelerator.current_accelerator() if hasattr(torch, "accelerator") else None
    python, numpy, host = random.getstate(), np.random.get_state(), torch.get_rng_state()
    accelerator = torch.get_device_module(device) if device is not None else None
    has_all = hasattr(accelerator, "get_rng_state_all")
    states = (accelerator.get_rng_state_all() if has_all else accelerator.get_rng_state()) if accelerator else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(host)
        if accelerator:
            (accelerator.set_rng_state_all if has_all else accelerator.set_rng_state)(states)
        for generator, state in generators:
            generator.set_state(state)
