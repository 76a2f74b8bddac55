"""`PyTorchOptimizer`: a training loop in a mode of optimisation, measured next to the loop as it was."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from statistics import median
from time import monotonic, perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd.attach import check_models, check_optimizers
from seismograd.costs import samples_in
from seismograd.optimize.metrics import Account
from seismograd.optimize.models import Optimized
from seismograd.optimize.modes import OptimizationMode
from seismograd.optimize.tuning.knobs import Knob, Variant, knobs_for
from seismograd.optimize.tuning.lanes import Interval, Lane, compare, memory_measure, peak_memory, speedup, synchronize
from seismograd.optimize.tuning.parity import Reference
from seismograd.optimize.tuning.search import in_words, raise_if_uncompiled
from seismograd.optimize.tuning.setups import Bench, Setup, aside, kept, placed

_SECONDS = 2.0
"""So long a mode is measured against the loop as it was."""

_MEASURES = ("speedup_factor", "memory_savings", "amp_enabled", "execution_time")

_COMPARED = 4
"""So many batches make a pass of the short loss curve."""


class PyTorchOptimizer:
    """Trains in a mode of optimisation and says what it brought; compares the modes.

    What it measured goes to `debugger.optimization_metrics`, if it has a debugger.
    """

    def __init__(self, debugger: Any = None) -> None:
        self.debugger = debugger

    def optimize_training_loop(  # noqa: PLR0917 (the seed's order)
        self,
        model: nn.Module,
        dataloader: Iterable[Any],
        optimizer: Optimizer,
        criterion: Any,
        epochs: int = 1,
        optimization_mode: OptimizationMode | str = OptimizationMode.AMP,
        accumulation_steps: int = 1,
        gradient_clip: float | None = None,
    ) -> dict[str, Any]:
        """Trains the model for some epochs in a mode. Its weights are trained: there is nothing to be taken over.

        - `accumulation_steps`: so many batches make one step, with the gradient that one large batch would have, also
          where the last ones are smaller: each counts by its samples.
        - `gradient_clip`: the norm that the gradient of a step may have.

        Returns `total_time`, `losses` (the mean of each epoch) and `optimization_metrics`: `speedup_factor` with its
        `speedup_interval`, `memory_savings`, `amp_enabled`, `execution_time` (seconds of a step). They are measured on
        copies, in turns with the loop as it was, before the training begins.
        """
        mode = OptimizationMode.of(optimization_mode)
        _check(model, dataloader, optimizer, criterion, epochs)
        if not isinstance(accumulation_steps, int) or accumulation_steps < 1:
            raise ValueError(f"accumulation_steps is {accumulation_steps!r}: give a whole number, 1 or more")
        if gradient_clip is not None and not gradient_clip > 0:
            raise ValueError(f"gradient_clip is {gradient_clip!r}: give the largest norm, above 0, or None")
        with aside(model, optimizer, criterion, dataloader):
            bench = Bench(model, criterion, optimizer, kept(dataloader, 5.0))
            variant, known, why = _variant(bench, mode), dict[str, Any](), ""
            try:
                known = _brought(bench, variant, variant.turned(bench.setup()))
            except Exception as error:  # it is trained all the same
                why = f"not measured: {in_words(error)}"
        model.train()
        setup = variant.turned(
            Setup(model, criterion, optimizer, bench.batches[:1], trained=model, device=bench.device)
        )
        losses, began = list[float](), perf_counter()
        for _ in range(epochs):
            losses.append(_epoch(setup, dataloader, accumulation_steps, gradient_clip))
        synchronize(bench.device)
        total = perf_counter() - began
        account = setup.model.account if isinstance(setup.model, Optimized) else Account(mode)
        metrics = dict.fromkeys(("speedup_factor", "speedup_interval", "memory_savings")) | known
        metrics |= {"amp_enabled": mode.narrows, "execution_time": known.get("execution_time", total)}
        account.learn(**{name: metrics[name] for name in _MEASURES})
        if why:
            account.note(why)
        if self.debugger is not None:
            self.debugger.take_optimization(model, account)
        return {
            "mode": mode.value,
            "total_time": total,
            "epochs": epochs,
            "losses": losses,
            "final_loss": losses[-1],
            "optimization_metrics": {**metrics, "notes": list(account.notes)},
        }

    def benchmark_optimizations(
        self, model: nn.Module, dataloader: Iterable[Any], optimizer: Optimizer, criterion: Any, epochs: int = 1
    ) -> dict[str, dict[str, Any]]:
        """Trains a copy of the model in each mode, and leaves the model as it is.

        For each mode, by its value: `total_time`, `losses`, `final_loss`, `speedup_factor` with its interval (of warm
        steps, in turns with the loop as it was), `memory_savings`, `amp_enabled`, `execution_time`, and `loss_parity`:
        whether outputs, gradients and the loss of the first steps are right. What a mode raised is its `error`.
        """
        _check(model, dataloader, optimizer, criterion, epochs)
        results: dict[str, dict[str, Any]] = {}
        with aside(model, optimizer, criterion, dataloader):
            bench = Bench(model, criterion, optimizer, kept(dataloader, 5.0))
            bench.check()
            reference = Reference(bench, _COMPARED)
            for mode in OptimizationMode:
                try:
                    variant = _variant(bench, mode)
                    with aside(model, optimizer, criterion, dataloader):  # the same order of the data for all
                        results[mode.value] = _trained(bench, variant, dataloader, epochs, reference)
                except Exception as error:
                    results[mode.value] = {"error": in_words(error)}
        return results


def _variant(bench: Bench, mode: OptimizationMode) -> Variant:
    knobs: list[Knob] = [knob for knob in knobs_for(bench)[0] if knob.name == mode.value]
    return Variant(tuple(knobs))


def _trained(
    bench: Bench, variant: Variant, dataloader: Iterable[Any], epochs: int, reference: Reference
) -> dict[str, Any]:
    """One mode: its epochs, its parity, and its steps against those of the loop as it was."""
    setup = variant.turned(bench.setup())
    began = perf_counter()
    losses = [_epoch(setup, dataloader) for _ in range(epochs)]
    synchronize(bench.device)
    total = perf_counter() - began
    setup = variant.turned(bench.setup())
    parity = reference.judge(reference.trace(setup, draws=variant.draws), variant.dtype(setup))
    known = _brought(bench, variant, setup)
    return {
        "total_time": total,
        "losses": losses,
        "final_loss": losses[-1],
        **known,
        "loss_parity": parity.ok and math.isfinite(losses[-1]),
        "parity": parity.verdict,
    }


def _brought(bench: Bench, variant: Variant, setup: Setup) -> dict[str, Any]:
    """What a mode brings, in this setup, next to the loop as it was."""
    known: dict[str, Any] = {
        "speedup_factor": None,
        "speedup_interval": None,
        "memory_savings": None,
        "amp_enabled": "amp" in variant.kinds,
        "execution_time": 0.0,
        "memory_measure": memory_measure(bench.device),
    }
    base, lane = Lane(bench.setup()), Lane(setup)
    for one in (base, lane):
        one.warm_up()
    if variant.compiles:
        raise_if_uncompiled(lane)
    before = peak_memory(base.setup)
    known["memory_savings"] = 1 - peak_memory(lane.setup) / before if before else 0.0
    until = monotonic() + _SECONDS
    rounds = compare([base, lane], until, until + _SECONDS)
    ratio = speedup(rounds, 0, 1) if variant.knobs else Interval(1.0, 1.0, 1.0, len(rounds))
    known["speedup_factor"], known["speedup_interval"] = ratio.middle, [ratio.low, ratio.high]
    known["execution_time"] = median(taken[1] for taken in rounds) * samples_in(bench.batches[0])
    return known


# -- the loop --------------------------------------------------------------------------------------------------------


def _epoch(setup: Setup, dataloader: Iterable[Any], accumulated: int = 1, clip: float | None = None) -> float:
    """One pass over the data; returns the mean loss of a sample."""
    total: Tensor | float = 0.0
    count, batches = 0, iter(dataloader)
    while group := list(islice(batches, accumulated)):
        group = [placed(batch, setup.device) for batch in group]
        total = total + _update(setup, group, clip)
        count += sum(map(samples_in, group))
    if not count:
        raise ValueError("the dataloader gives no batches: it has to give at least one, in every epoch")
    return float(total) / count


def _update(setup: Setup, group: Sequence[Any], clip: float | None) -> Tensor:
    """One step with the gradient of all these batches; returns the loss of each sample, added up."""
    optimizer, scaler = setup.optimizer, setup.scaler
    sizes = [samples_in(batch) for batch in group]
    adds_up = getattr(setup.loss_fn, "reduction", "mean") == "sum"
    seen: list[Tensor] = []

    def gather() -> Tensor:
        optimizer.zero_grad()
        parts = list[Tensor]()
        for batch, size in zip(group, sizes, strict=True):
            loss = setup.loss(batch)
            share = loss if adds_up or len(group) == 1 else loss * (size / sum(sizes))
            (share if scaler is None else scaler.scale(share)).backward()
            parts.append(loss.detach().float() * (1 if adds_up else size))
        if clip is not None:
            if scaler is not None:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], clip)
        seen.append(torch.stack(parts).sum())
        return seen[0] / sum(sizes)

    step: Any = optimizer.step
    if isinstance(optimizer, torch.optim.LBFGS):  # it evaluates by itself
        step(gather)
        return seen[0]
    gather()
    if scaler is None:
        step()
    else:
        scaler.step(optimizer)
        scaler.update()
    return seen[0]


def _check(model: Any, dataloader: Any, optimizer: Any, criterion: Any, epochs: Any) -> None:
    if isinstance(model, type) or not isinstance(model, nn.Module):
        raise TypeError(f"model is {model!r}: give an nn.Module")
    check_models(model)
    if not check_optimizers(optimizer):
        raise TypeError("optimizer is None: give the one that trains the model")
    if criterion is not None and (not callable(criterion) or isinstance(criterion, type)):
        raise TypeError(f"criterion is {criterion!r}: give a loss function, such as nn.CrossEntropyLoss()")
    if not hasattr(dataloader, "__iter__") or hasattr(dataloader, "__next__"):
        raise TypeError(
            f"dataloader is a {type(dataloader).__name__}, which cannot be walked again and again: give a DataLoader or"
            " a list of batches"
        )
    if not isinstance(epochs, int) or epochs < 1:
        raise ValueError(f"epochs is {epochs!r}: give a whole number, 1 or more")
