"""`create_enhanced_training_optimizer`: a training loop that is watched, saved as it goes, and gone on with exactly.

The loop is `Trainer._steps`, `_step` and `_validate`. What makes it a watched one is a single line in `_session`.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from time import perf_counter, time
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from seismograd.complaints import complain
from seismograd.costs import cost, samples_in
from seismograd.optimize.autocasting import device_of
from seismograd.optimize.trainer import choices, saving
from seismograd.optimize.trainer.bar import Bar
from seismograd.optimize.trainer.checkpoint_files import CheckpointFolder, read
from seismograd.optimize.trainer.course import Course, Mean, worst
from seismograd.optimize.trainer.feed import Feed
from seismograd.optimize.trainer.guesses import guessed_loss
from seismograd.optimize.trainer.interrupts import Interrupts
from seismograd.optimize.trainer.randomness import held_by, noted, restore
from seismograd.profiling.session import Profile
from seismograd.quiet_rich import Console
from seismograd.records import DebugLevel
from seismograd.recovery.trouble import TrainingStopped
from seismograd.replay.numbers import mapped
from seismograd.training import TrainingDebugger, watch


class Trainer:
    """Trains a model, watched, with checkpoints from which a run goes on as if nothing had happened.

    - `train_loader`, `val_loader`: a `DataLoader`, a list, whatever can be gone through once for each epoch; batches of
      any structure (`seismograd.costs` has the table). `weight(batch)` says how much a batch counts in means and in
      accumulation: by default, its number of samples.
    - `loss_fn`: without one, the model's own loss if it takes the target, else cross entropy for integer targets and
      the mean squared error for real ones of the output's shape; anything else is an error that says so.
    - `optimizer`: one, or a class or function of the parameters; AdamW with `learning_rate` without it.
    - `scheduler`: one, or a function of the optimizer; `schedule_per` says when it steps. `ReduceLROnPlateau` gets the
      validation loss, each epoch.
    - `accumulation_steps`: so many batches make one step, with the gradient that one large batch would have.
    - `amp`: `True` for autocast in the dtype that suits the device, or `"bf16"`, `"fp16"` (with a `GradScaler`).
    - `gradient_clip`: the largest norm of the gradient.
    - `patience`: so many epochs in a row without a better loss (by `min_delta`) end the training.
    - `checkpoint_dir`: where `last.pt` and `best.pt` are written after each epoch, and every `save_every` steps.
    - `resume`: `True` goes on from the last checkpoint in it, `"auto"` does if there is one, a path from that one.
    - `progress`: a bar on stderr; by default on a terminal.
    - `enable_pytorch_debugging`: whether the training is watched; `debug_mode` looks closest (`level="extreme"`);
      `level`, `recovery`, `name`, `store` and all others go to `seismograd.watch`; `logger` is told of findings.
    - `enable_profiling`: the first steps are profiled (`profile.json` in `checkpoint_dir`).
    """

    def __init__(
        self,
        model: nn.Module,
        train_loader: Any,
        val_loader: Any = None,
        *,
        debug_mode: bool = False,
        enable_pytorch_debugging: bool = True,
        enable_profiling: bool = False,
        max_epochs: int = 10,
        learning_rate: float = 1e-3,
        gradient_clip: float | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        loss_fn: Callable[..., Any] | None = None,
        optimizer: Optimizer | Callable[..., Optimizer] | None = None,
        scheduler: Any = None,
        schedule_per: Literal["step", "epoch"] = "epoch",
        accumulation_steps: int = 1,
        amp: bool | str | torch.dtype = False,
        patience: int | None = None,
        min_delta: float = 0.0,
        resume: bool | str | os.PathLike[str] = False,
        save_every: int | None = None,
        progress: bool | None = None,
        seed: int | None = None,
        weight: Callable[[Any], float] = samples_in,
        logger: Any = None,
        level: DebugLevel | str | None = None,
        **watching: Any,
    ) -> None:
        choices.check_watching(watching, enable_pytorch_debugging)
        self.model, self.loss_fn = model, loss_fn
        self.optimizer = choices.the_optimizer(model, optimizer, learning_rate)
        self.scheduler, self.schedule_per = choices.the_scheduler(self.optimizer, scheduler, schedule_per)
        self.max_epochs = choices.at_least_one("max_epochs", max_epochs)
        self.accumulation_steps = choices.at_least_one("accumulation_steps", accumulation_steps)
        self.save_every = None if save_every is None else choices.at_least_one("save_every", save_every)
        self.gradient_clip = None if gradient_clip is None else choices.positive("gradient_clip", gradient_clip)
        self.device = device_of(model)
        self.dtype = choices.autocast_dtype(amp, self.device)
        self.scaler = GradScaler(self.device.type, enabled=self.dtype is torch.float16)
        self.checkpoints = None if checkpoint_dir is None else CheckpointFolder(checkpoint_dir)
        self.course = Course(self.device, patience, min_delta)
        self.watch: TrainingDebugger | None = None
        self.results: dict[str, Any] = {}
        """What came of it, once it is over, however it ended."""
        self._watching = {"level": level or ("extreme" if debug_mode else None), **watching}
        self._watched, self._profiled, self._logger = enable_pytorch_debugging, enable_profiling, logger
        self._weight, self._seed, self._progress = weight, seed, progress
        self.own = held_by(saving.bare(model).modules(), train_loader, val_loader)
        exact = self.checkpoints is not None
        self.training_feed = Feed(train_loader, self.own, exact=exact)
        self.validation_feed = None if val_loader is None else Feed(val_loader, self.own, exact=exact)
        self._events: list[dict[str, Any]] = []
        self._asked: str | None = None
        self._from = choices.where_to_go_on(resume, self.checkpoints)

    # -- the loop ----------------------------------------------------------------------------------------------------

    async def train(self) -> dict[str, Any]:
        """Trains. Between two steps other tasks have their turn; cancelled, it saves and stops there."""
        with self._session() as steps:
            for _ in steps:
                await asyncio.sleep(0)
                if self._asked:
                    break
        return self.results

    def train_sync(self) -> dict[str, Any]:
        """Trains. Ctrl-C stops it after the present step, which is saved; a second one stops it at once."""
        with self._session() as steps:
            for _ in steps:
                if self._asked:
                    break
        return self.results

    def stop(self, reason: str = "stopped") -> None:
        """Asks the training, from anywhere, to save and stop after its present step."""
        self._asked = self._asked or reason

    def _steps(self, bar: Bar) -> Generator[None, None, None]:
        """The training. Wherever it yields, it may be left, saved, and gone on with."""
        while self.course.epoch < self.max_epochs and not self.course.waited_enough:
            batches = self.training_feed.batches(self.course.epoch)
            while group := list(islice(batches, self.accumulation_steps)):
                loss = self._step(group)
                bar.show(self.course, loss, self._lr)
                if self.save_every and self.course.step % self.save_every == 0:
                    self._save()
                yield
            if not self.training_feed.used:
                raise ValueError(f"train_loader has no batch in epoch {self.course.epoch + 1}: {_GONE}")
            val_loss = yield from self._validate()
            self._end_epoch(val_loss)
            yield

    def _step(self, group: Sequence[Any]) -> Tensor:
        """One step of the optimizer: the mean loss over all samples of some batches."""
        weights = [float(self._weight(batch)) for batch in group]
        total = sum(weights) or 1.0
        mean = torch.zeros((), device=self.device)
        self.optimizer.zero_grad()
        for batch, weight in zip(group, weights, strict=True):
            loss = self._loss(batch)
            if len(group) > 1 and not self._sums:
                loss = loss * (weight / total)
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            mean += loss.detach().reshape(())
        self.scaler.unscale_(self.optimizer)
        if self.gradient_clip is not None:
            parameters = [one for named in self.optimizer.param_groups for one in named["params"]]
            nn.utils.clip_grad_norm_(parameters, self.gradient_clip)
        scale, left_out = self.scaler.get_scale(), self._left_out
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.schedule_per == "step" and self.scheduler is not None and self.scaler.get_scale() >= scale:
            self.scheduler.step()  # not where the scaler has left the optimizer's step out
        if self._left_out == left_out or bool(mean.isfinite()):  # what was not learned from is not in the curve
            self.course.loss.add(mean / total if self._sums else mean, total)
        self.course.step += 1
        return mean

    def _validate(self) -> Generator[None, None, float | None]:
        """The mean loss over all samples, in evaluation mode; generators are put back if it is left before its end."""
        if self.validation_feed is None:
            return None
        before, modes = noted(self.own), {module: module.training for module in self.model.modules()}
        mean, over = Mean(self.device), False
        self.model.eval()
        try:
            for batch in self.validation_feed.batches(self.course.epoch):
                with torch.no_grad():  # not around the yield: other tasks want gradients
                    loss = self._loss(batch)
                weight = float(self._weight(batch))
                mean.add(loss / (weight or 1.0) if self._sums else loss, weight)
                yield
            over = True
        finally:
            for module, training in modes.items():
                module.training = training
            if not over:
                restore(before, self.own)
        if not self.validation_feed.used:
            raise ValueError(f"val_loader has no batch in epoch {self.course.epoch + 1}: {_GONE}")
        return mean.value()

    def _end_epoch(self, val_loss: float | None) -> None:
        best = self.course.epoch_over(val_loss, self._lr)
        self.training_feed.used = 0
        if self.watch is not None and val_loss is not None:
            self.watch.validate(val_loss)
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(self.course.curves["train_loss"][-1] if val_loss is None else val_loss)
        elif self.scheduler is not None and self.schedule_per == "epoch":
            self.scheduler.step()
        self._save(best=best)

    def _loss(self, batch: Any) -> Tensor:
        if self.device.type != "cpu":
            batch = mapped(batch, lambda tensor: tensor.to(self.device, non_blocking=True))
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None):
            loss = cost(self.model, self.loss_fn or guessed_loss(self.model, batch), batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = f"of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise ValueError(f"the loss is {got}: it has to be a tensor with one number, use .mean()")
        return loss

    @property
    def _lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    @property
    def _sums(self) -> bool:
        """Whether the loss is a sum over samples, of which the parts add up as they are."""
        return getattr(self.loss_fn, "reduction", "mean") == "sum"

    @property
    def _left_out(self) -> int:
        """How many updates `recovery` has left out or undone."""
        if self.watch is None or self.watch.recovery is None:
            return 0
        told = self.watch.get_training_summary()
        return int(told["skipped_steps"]) + int(told["rollbacks"])

    # -- around it ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _session(self) -> Iterator[Generator[None, None, None]]:
        """The steps, with everything around them that is opened before and closed after."""
        if self.results:
            raise RuntimeError("this trainer has trained: make another, with resume=True to go on")
        console, profile = Console(stderr=True), None
        try:
            with ExitStack() as stack:
                stack.enter_context(Interrupts(self.stop))
                resumed = self._begin()
                if self._watched:
                    options = {"sinks": choices.told(console, self._logger), **self._watching}
                    self.watch = stack.enter_context(watch(self.model, self.optimizer, **options))
                    self.watch.errands.stop = self.stop
                if self._profiled:
                    folder = None if self.checkpoints is None else self.checkpoints.folder / "profile.json"
                    profile = stack.enter_context(Profile(folder))
                if resumed:
                    self._note("resumed", resumed)
                total, done = self._steps_in_all(), self.course.step
                bar = stack.enter_context(Bar(console, self._progress, self.max_epochs, total, done))
                steps = self._steps(bar)
                stack.callback(steps.close)
                try:
                    yield steps
                except asyncio.CancelledError:  # it comes where the task waits, between two steps
                    self._leave(steps, "cancelled")
                    raise
                except TrainingStopped as error:  # a policy of `recovery`; the last checkpoint is of before
                    self.stop(str(error))
                except KeyboardInterrupt:  # it comes anywhere: what is half done is not saved
                    self.stop("interrupted")
                    raise
                else:
                    if self._asked:
                        self._leave(steps, self._asked)
        finally:
            self.results = self._result(profile)

    def _begin(self) -> str | None:
        """Goes on from a checkpoint, which it tells, or begins: what cannot be saved is told before the first step."""
        self.course.began = perf_counter()
        if not self.model.training:  # parts that are in evaluation mode on purpose stay so
            self.model.train()
        if isinstance(self._from, CheckpointFolder):
            return saving.go_on(self, *self._from.newest())
        if self._from is not None:
            return saving.go_on(self, self._from, read(self._from))
        if self._seed is not None:
            torch.manual_seed(self._seed)
            random.seed(self._seed)
            np.random.seed(self._seed % 2**32)
        if self.checkpoints is not None:
            self.checkpoints.write(saving.state_of(self))
        return None

    def _leave(self, steps: Generator[None, None, None], why: str) -> None:
        self.stop(why)
        steps.close()
        self._save()
        self._note("stopped", f"{why} after step {self.course.step}")

    def _steps_in_all(self) -> int | None:
        try:
            return math.ceil(len(self.training_feed.loader) / self.accumulation_steps) * self.max_epochs
        except TypeError:
            return None

    def _note(self, kind: str, text: str, level: str = "info") -> None:
        if self.watch is not None:
            self.watch.note(kind, text, level)
        self._events.append({"time": time(), "event_type": kind, "message": text})

    def _result(self, profile: Profile | None) -> dict[str, Any]:
        course, watched = self.course, self.watch
        findings = course.found(() if watched is None else watched.findings)
        ended = "early stopping" if course.waited_enough else "crashed"
        status = worst(findings) if watched is not None else "unwatched"
        stopped = self._asked or ("finished" if course.epoch >= self.max_epochs else ended)
        files = None if self.checkpoints is None else self.checkpoints
        return {
            **course.curves,
            "epochs": course.epoch,
            "steps": course.step,
            "seconds": course.seconds,
            "best_epoch": course.stopper.best_step,
            "best_loss": course.stopper.best,
            "best_val_loss": None if self.validation_feed is None else course.stopper.best,
            "stopped": stopped,
            "interrupted": self._asked == "interrupted",
            "status": "crashed" if stopped == "crashed" else status,
            "findings": findings,
            "report": None if watched is None else watched.report(),
            "events": self._events if watched is None else list(watched.events),
            "last_checkpoint": str(files.last) if files and files.last.exists() else None,
            "best_checkpoint": str(files.best) if files and files.best.exists() else None,
            "profile": None if profile is None or profile.result is None else profile.result.to_dict(),
        }

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _save(self, *, best: bool = False) -> None:
        """Writes a checkpoint; where the disk refuses, the training goes on with the one before, and says so."""
        if self.checkpoints is None:
            return
        try:
            self.checkpoints.write(saving.state_of(self), best=best)
        except (OSError, RuntimeError, TypeError) as error:  # RuntimeError: torch's writer, on a full disk
            text = f"the checkpoint of step {self.course.step} was not written ({type(error).__name__}: {error})"
            self._note("checkpoint_failed", text, "warning")
            complain(f"seismograd: {text}; the one before it is still there")


_GONE = "a generator can be gone through only once, a list or a DataLoader again and again"

create_enhanced_training_optimizer = Trainer
