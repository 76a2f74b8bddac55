"""`SeismogradCallback`: a watch over the `Trainer` of transformers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

from seismograd.extras import need
from seismograd.integrations.watching import Watching
from seismograd.records import Severity

try:
    from transformers.trainer_callback import TrainerCallback as _TrainerCallback
except ModuleNotFoundError:  # said when a callback is made
    _TrainerCallback = object

_KNOWN = ("loss", "grad_norm", "learning_rate", "epoch", "total_flos", "num_input_tokens_seen", "step")
_OF_TIME = ("_runtime", "_per_second", "_loss", "_mem_cpu_alloc_delta", "_mem_cpu_peaked_delta")
"""What a Trainer logs and Seismograd reads by itself, or what is no series of the run."""


class SeismogradCallback(Watching, _TrainerCallback):  # type: ignore[misc]
    """Watches what a `Trainer` trains: `Trainer(..., callbacks=[SeismogradCallback()])`.

    It takes the arguments of `seismograd.watch`, and `stop_on`, a severity: the Trainer stops after the step at which
    something as severe was found. Each `train()` is a run of its own; `watch` is the newest one's, also when it is
    over. Evaluation losses, the Trainer's own metrics, and the end of a `train()` that raises are heard by themselves.
    """

    def __init__(self, *, stop_on: Severity | str | None = None, **watch_arguments: Any) -> None:
        need("transformers", "transformers")
        super().__init__(stop_on=stop_on, **watch_arguments)
        _mind_trainers(self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Opens the watch, on the model and the optimizer as they are trained."""
        watch = self.open(kwargs["model"], kwargs.get("optimizer"), name=getattr(args, "run_name", None))
        if state.global_step:
            watch.note("resumed", f"the Trainer goes on after step {state.global_step}: counted from 0 here")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Passes the Trainer's own metrics on, as series of the run."""
        self.pass_on({name: value for name, value in (logs or {}).items() if not name.endswith(_OF_TIME)}, _KNOWN)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Stops the training where that was asked for."""
        if self.wants_stop:
            control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.close()


_callbacks: weakref.WeakSet[SeismogradCallback] = weakref.WeakSet()
_original: Callable[..., Any] | None = None


def _mind_trainers(callback: SeismogradCallback) -> None:
    """A `train()` that raises tells no callback: as long as there is one of ours, `Trainer.train` does."""
    global _original  # noqa: PLW0603
    _callbacks.add(callback)
    weakref.finalize(callback, _leave_trainers).atexit = False
    if _original is not None:
        return
    train = _original = _trainer().train

    @wraps(train)
    def minded(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return train(self, *args, **kwargs)
        except BaseException as error:
            for ours in self.callback_handler.callbacks:
                if isinstance(ours, SeismogradCallback):
                    ours.close(error)
            raise

    _trainer().train = minded


def _leave_trainers() -> None:
    """Puts `Trainer.train` back, once the last callback is gone."""
    global _original
    if not list(_callbacks) and _original is not None:  # the one that goes may still be counted, but is not there
        trainer = _trainer()
        if getattr(trainer.train, "__wrapped__", None) is _original:
            trainer.train, _original = _original, None


def _trainer() -> Any:
    return need("transformers", "transformers").Trainer
