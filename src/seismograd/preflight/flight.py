"""Makes the checks one after the other, shows which, and puts everything back."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import perf_counter
from typing import Any

from torch import nn
from torch.optim import Optimizer

from seismograd import patches
from seismograd.attach import check_models, check_optimizers
from seismograd.detectors import DEFAULT
from seismograd.judge import Judge
from seismograd.preflight.checks import CHECKS
from seismograd.preflight.result import Done, Preflight
from seismograd.preflight.scene import Check, Scene, set_up
from seismograd.preflight.trial import CannotCheckError, Trial
from seismograd.replay.numbers import tensors_in

BY_THE_WATCH = "the watch sees to it in the first steps"


def preflight(
    model: nn.Module,
    batch: Any,
    loss_fn: Callable[..., Any] | None = None,
    optimizer: Optimizer | None = None,
    loader: Any = None,
) -> Preflight:
    """Checks a model, a batch and a loss before they are trained, in some seconds, and puts everything back.

    - `batch`: `(x, y)`, a dict, or anything else: `seismograd.costs.cost` says how it goes with `loss_fn`, which is
      `f(output, target)`, `f(output)` or `f(model, batch)`; `None` for a model that says its loss itself.
    - `optimizer`: its learning rate and its parameters are checked, too.
    - `loader`: where batches come from; whether it keeps up is checked.

    The result has `findings`, of the same catalogue as those of a run, `ok`, `report()` and `figures`; printed, it is
    a table. Each check is a file of `seismograd.preflight`.
    """
    trial = _checked(model, batch, loss_fn, optimizer, loader)
    began = perf_counter()
    with patches.apart(), quietly():
        scene = set_up(trial)
        if scene.failure is None:
            with suppress(CannotCheckError):  # the original will do: it is put back
                scene.trial = trial.on_a_copy()
        checks = CHECKS if scene.failure is None else CHECKS[:1]
        result = made(checks, scene, _Progress(sys.stderr) if _is_terminal(sys.stderr) else None)
    if scene.failure is not None:
        why = f"the {scene.failure.phase} does not work"
        result.checks += [Done(check.name, 0.0, left_out=why) for check in CHECKS[1:]]
    result.seconds = perf_counter() - began
    return result


def made(checks: Sequence[Check], scene: Scene, progress: _Progress | None = None) -> Preflight:
    """Makes these checks. One that fails is left out, and says why."""
    judge = Judge(DEFAULT)  # it knows what follows from what
    done: list[Done] = []
    began = perf_counter()
    try:
        for at, check in enumerate(checks):
            if progress is not None:
                progress.show(at, len(checks), check.name)
            started = perf_counter()
            try:
                told = list(check.check(scene))
            except Exception as error:
                text = " ".join(str(error).split())[:200]
                if not isinstance(error, CannotCheckError):
                    text = f"it failed with {type(error).__name__}: {text}"
                done.append(Done(check.name, perf_counter() - started, left_out=text))
                continue
            for finding in told:  # what explains it is found anew, among these
                evidence = {name: value for name, value in finding.evidence.items() if name != "because"}
                judge.add(replace(finding, evidence=evidence))
            done.append(Done(check.name, perf_counter() - started, len(told)))
    finally:
        if progress is not None:
            progress.clear()
    return Preflight(judge.findings, done, scene.figures, perf_counter() - began)


def before_a_run(scene: Scene, why: str = "") -> Preflight:
    """The checks for a script that runs: without a trial those that need nothing but one recorded forward pass."""
    if scene.trial is not None:
        return made(CHECKS, scene)
    result = made([check for check in CHECKS if not check.trains], scene)
    later = [check for check in CHECKS if check.trains]
    result.checks += [Done(one.name, 0.0, left_out=BY_THE_WATCH if one.watched else why) for one in later]
    return result


def _checked(model: Any, batch: Any, loss_fn: Any, optimizer: Any, loader: Any) -> Trial:
    if isinstance(model, type) or not isinstance(model, nn.Module):
        raise TypeError(f"preflight() got {model!r} as its model: give an nn.Module")
    check_models(model)
    if not tensors_in(batch):
        raise TypeError(
            f"preflight() got a {type(batch).__name__} without a tensor as its batch: give what the loop gets"
        )
    if loss_fn is not None and not callable(loss_fn):
        raise TypeError(f"preflight() got {loss_fn!r} as its loss_fn: give a function, or None if the model has a loss")
    if isinstance(loss_fn, type):
        raise TypeError(f"preflight() got the class {loss_fn.__name__} as its loss_fn: give an instance of it")
    if loader is not None and not hasattr(loader, "__iter__"):
        raise TypeError(f"preflight() got {loader!r} as its loader: it cannot be iterated over")
    found = check_optimizers(optimizer)
    return Trial(model, batch, loss_fn, found[0] if found else None, loader)


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


class _Progress:
    """One line on a terminal, written over and over."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def show(self, at: int, of: int, name: str) -> None:
        self._stream.write(f"\r\x1b[Kpreflight {at + 1}/{of}: {name}")
        self._stream.flush()

    def clear(self) -> None:
        self._stream.write("\r\x1b[K")
        self._stream.flush()


@contextmanager
def quietly() -> Iterator[None]:
    """What user code warns of has been heard once in the first pass: it need not come with every check."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
