"""`assert_trains` and `assert_healthy`: a training is watched, and what is wrong with it fails the test."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from seismograd.records import Severity
from seismograd.testing import pages

if TYPE_CHECKING:
    from torch import nn

    from seismograd.training import TrainingDebugger

BY_THE_CLOCK = ("cpu-pressure", "data-starvation", "memory-pressure", "slow-step")
"""Findings that depend on how busy the machine is: a test that asks for them fails now and then."""

_WIDTH = 100


class Healthy:
    """A watch over a loop of the test's own: leaving it fails the test if something is wrong with the training.

    `watch` is the watch itself, and what it has is had here too (`observe`, `validate`, `log`, `findings`).
    """

    def __init__(
        self,
        models: Any,
        optimizers: Any = None,
        *,
        level: str = "advanced",
        ignore: Iterable[str] | str = (),
        fail_on: str = "warning",
        must_improve: bool | float = False,
        **arguments: Any,
    ) -> None:
        from seismograd.training import watch

        try:
            self._limit = Severity(fail_on)
        except ValueError:
            raise ValueError(f"fail_on is {fail_on!r}: it takes 'info', 'warning' or 'critical'") from None
        self._must_improve = _share(must_improve)
        self._folder = tempfile.TemporaryDirectory(prefix="seismograd-test-") if pages.folder is not None else None
        ignored = {ignore} if isinstance(ignore, str) else set(ignore)
        if arguments.get("detectors") is None:
            ignored |= set(BY_THE_CLOCK)
        from seismograd.sinks import Memory

        self._memory = Memory()
        settings = {
            "budget": 1.0,  # every step is read, however busy the machine
            "store": False if self._folder is None else self._folder.name,
            **arguments,
            "sinks": [*(arguments.get("sinks") or ()), self._memory],
        }
        with _no_captures():
            self.watch: TrainingDebugger = watch(models, optimizers, level=level, ignore=ignored, **settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.watch, name)

    def __enter__(self) -> Healthy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        if error is None:
            self.check()
            return
        self.watch.__exit__(kind, error, traceback)
        self._forget()
        if any(finding.severity.weight >= self._limit.weight for finding in self.watch.findings):
            error.add_note(self.told())

    def check(self) -> None:
        """Closes the watch; an `AssertionError` with the verdict if something is wrong."""
        __tracebackhide__ = True
        self.close()
        wrong = [finding for finding in self.watch.findings if finding.severity.weight >= self._limit.weight]
        problem = "" if wrong else self._not_improved()
        failure = "\n".join(part for part in (problem, self.told(), self._page()) if part) if wrong or problem else ""
        self._forget()
        if failure:
            raise AssertionError(failure)

    def close(self) -> None:
        self.watch.close()

    def told(self) -> str:
        """The verdict as the terminal shows it."""
        from seismograd.quiet_rich import Console
        from seismograd.reports.terminal import render_finding, render_verdict

        console = Console(file=io.StringIO(), width=_WIDTH, no_color=True, highlight=False, markup=False, emoji=False)
        findings = self.watch.findings
        console.print(render_verdict(self.watch.report(), height=1_000_000))
        if all(finding.severity is Severity.INFO for finding in findings):
            for finding in findings:
                console.print(render_finding(finding))
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        return text.rstrip()

    def _not_improved(self) -> str:
        """What is wrong with the loss: it has to come down, by the share that was asked for."""
        if self._must_improve is None:
            return ""
        losses = [float(value) for value in self._memory.series("loss")[1] if math.isfinite(value)]
        if len(losses) < 2:
            return f"seismograd: must_improve needs two losses at least, {len(losses)} were seen"
        some = max(1, min(10, len(losses) // 4))
        first, last = sum(losses[:some]) / some, sum(losses[-some:]) / some
        if first - last > self._must_improve * abs(first):
            return ""
        wanted = f" by {self._must_improve:.0%}" if self._must_improve else ""
        return (
            f"seismograd: the loss did not come down{wanted} in {len(losses)} steps: {first:.4g} at first, "
            f"{last:.4g} at last (means of {some})"
        )

    def _page(self) -> str:
        path = pages.path_for(self.watch.name)
        if path is None:
            return ""
        with contextlib.suppress(Exception):  # the verdict matters more than its page
            path.parent.mkdir(parents=True, exist_ok=True)
            self.watch.html(path)
            return f"seismograd: the page is in {path}"
        return ""

    def _forget(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


@contextlib.contextmanager
def _no_captures() -> Iterator[None]:
    """A watch that is opened meanwhile saves no step: a test leaves nothing behind."""
    before = os.environ.get("SEISMOGRAD_CAPTURE")
    os.environ["SEISMOGRAD_CAPTURE"] = "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ["SEISMOGRAD_CAPTURE"]
        else:
            os.environ["SEISMOGRAD_CAPTURE"] = before


def assert_healthy(models: Any, optimizers: Any = None, **arguments: Any) -> Healthy:
    """A watch for a loop of the test's own, which fails the test on leaving if something is wrong with the training.

        with assert_healthy(model, optimizer) as watch:
            train(model, optimizer)

    `level`, `ignore`, `fail_on` (`"warning"`), `must_improve` (`False`), and whatever `sg.watch` takes.
    """
    return Healthy(models, optimizers, **arguments)


def assert_trains(
    model: nn.Module,
    batches: Iterable[Any],
    loss_fn: Any = None,
    optimizer: Any = None,
    *,
    steps: int = 100,
    level: str = "advanced",
    ignore: Iterable[str] | str = (),
    fail_on: str = "warning",
    must_improve: bool | float = True,
    seed: int | None = 0,
    **arguments: Any,
) -> Mapping[str, Any]:
    """Trains the model for some steps; fails with a diagnosis if something is wrong, or if the loss does not fall.

    - `batches` begin again when they are used up; `loss_fn` as `sg.preflight` takes it; Adam without an optimizer.
    - `must_improve`: the loss has to come down; 0.5: by half.
    - It is the given model that is trained, and stays trained: give a copy if you need it as it was. Torch's random
      numbers begin with `seed`, and are put back afterwards; `seed=None` leaves them alone.

    Returns the report.
    """
    __tracebackhide__ = True
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps is {steps!r}: it takes 1 or more")
    import torch

    from seismograd.costs import cost

    with contextlib.ExitStack() as stack:
        if seed is not None:
            stack.enter_context(torch.random.fork_rng())
            torch.manual_seed(seed)
        if optimizer is None:
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        if not model.training:  # else parts that are in evaluation mode are meant to be
            stack.callback(_back_to, {module: module.training for module in model.modules()})
            model.train()
        healthy = Healthy(
            model, optimizer, level=level, ignore=ignore, fail_on=fail_on, must_improve=must_improve, **arguments
        )
        with healthy:
            for batch in itertools.islice(_again(batches), steps):

                def loss_of(batch: Any = batch) -> Any:
                    optimizer.zero_grad()
                    loss = cost(model, loss_fn, batch)
                    loss.backward()
                    return loss

                if isinstance(optimizer, torch.optim.LBFGS):
                    optimizer.step(loss_of)  # type: ignore[no-untyped-call]
                else:
                    loss_of()
                    optimizer.step()
    return healthy.watch.report()


def _back_to(modes: Mapping[nn.Module, bool]) -> None:
    for module, training in modes.items():
        module.training = training


def _again(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches over and over; those of an iterator, which has them once, are kept for that."""
    if iter(batches) is batches:
        yield from itertools.cycle(batches)
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise ValueError("batches is empty: give at least one")


def _share(must_improve: bool | float) -> float | None:
    if must_improve is False:
        return None
    if must_improve is True:
        return 0.0
    if not isinstance(must_improve, (int, float)) or not 0 <= must_improve <= 1:
        raise ValueError(f"must_improve is {must_improve!r}: it takes True, False, or a share such as 0.5")
    return float(must_improve)
