"""`tune`: tries what may make a training faster, one knob after the other and then together, and proves it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from seismograd.attach import check_models, check_optimizers
from seismograd.optimize.tuning.knobs import Knob, given, knobs_for
from seismograd.optimize.tuning.lanes import memory_measure
from seismograd.optimize.tuning.search import Search
from seismograd.optimize.tuning.search_progress import Clock
from seismograd.optimize.tuning.setups import Bench, aside, kept
from seismograd.optimize.tuning.tuned import Tuning


def tune(
    model: nn.Module,
    batches: Iterable[Any],
    loss_fn: Callable[..., Any] | None = None,
    optimizer: Optimizer | None = None,
    *,
    seconds: float = 60.0,
    variants: Any = None,
    knobs: Iterable[str] | None = None,
) -> Tuning:
    """Finds what makes this training faster and leaves what it learns as it is, in about `seconds`.

    - `batches`: a `DataLoader`, whose settings are tried too, or any other iterable of what the loop gets; a few are
      taken. How they go with `loss_fn` is as `seismograd.costs.cost` has it.
    - `optimizer`: its kind and settings are kept; SGD if left out.
    - `variants`: more ways to try: a dict of functions by name, each of which changes the `Setup` that it is given.
    - `knobs`: only these of ours, by name or kind: `["amp", "threads"]`; `[]` for none.

    Every variant gets copies of everything, begins with the same weights, random numbers and batches, and takes turns
    with the baseline. One is recommended only if it was faster beyond the noise twice, the second time on its own, and
    if outputs, gradients and a short loss curve are right. The result has `recommended`, `code`, `outcomes`, `plot()`
    and `to_dict()`; printed, it is a table. Ctrl-C ends it with what is known by then. Afterwards everything of yours
    is as it was.
    """
    found = _checked(model, loss_fn, optimizer, seconds)
    own = given(variants)
    with Clock(seconds) as clock, aside(model, found, loss_fn, batches):
        loader = batches if isinstance(batches, DataLoader) else None
        clock.show("taking batches")
        bench = Bench(model, loss_fn, found, kept(batches, 0.1 * seconds), loader)
        bench.check()
        ours, missing = knobs_for(bench)
        if knobs is not None:
            ours, missing = _chosen(ours, missing, knobs), {}
        tuning = Tuning(
            memory_measure=memory_measure(bench.device),
            limit=seconds,
            device=str(bench.device),
            threads=torch.get_num_threads(),
        )
        search = Search(bench, clock, tuning, [*own, *ours])
        try:
            search.run()
        except KeyboardInterrupt:
            tuning.stopped = "stopped by Ctrl-C"
        search.finish(missing)
        tuning.seconds = clock.passed
    return tuning


def _checked(model: Any, loss_fn: Any, optimizer: Any, seconds: float) -> Optimizer:
    if isinstance(model, type) or not isinstance(model, nn.Module):
        raise TypeError(f"tune() got {model!r} as its model: give an nn.Module")
    check_models(model)
    if loss_fn is not None and not callable(loss_fn):
        raise TypeError(f"tune() got {loss_fn!r} as its loss_fn: give a function, or None if the model has a loss")
    if isinstance(loss_fn, type):
        raise TypeError(f"tune() got the class {loss_fn.__name__} as its loss_fn: give an instance of it")
    if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise ValueError(f"seconds is {seconds!r}: give a number above 0")
    found = check_optimizers(optimizer)
    if found:
        return found[0]
    return torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=1e-3)


def _chosen(ours: list[Knob], missing: dict[str, str], wanted: Iterable[str]) -> list[Knob]:
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    known = {knob.name for knob in ours} | {kind for knob in ours for kind in knob.kind.split()}
    for name in names:
        if name not in known:
            why = f": {missing[name]}" if name in missing else f": there are {', '.join(sorted(known))}"
            raise ValueError(f"knobs has {name!r}, which this training does not have{why}")
    kinds = {knob.kind for knob in ours}
    return [
        knob
        for knob in ours
        if knob.name in names
        or any(name == knob.kind or (name not in kinds and name in knob.kind.split()) for name in names)
    ]
