"""`SeismogradCallback`: a watch over the `Trainer` of Lightning, under both of its names."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from seismograd.extras import need
from seismograd.integrations.watching import VALIDATION, Watching
from seismograd.records import Severity

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def _callback() -> type:
    """The `Callback` of the Lightning that the script uses; the hooks of both are the same."""
    used = sorted(_NAMES, key=lambda name: name not in sys.modules)
    for name in used:
        if find_spec(name.partition(".")[0]) is not None:
            return import_module(name).Callback  # type: ignore[no-any-return]
    return object  # said when a callback is made


_Callback: Any = _callback()


class SeismogradCallback(Watching, _Callback):  # type: ignore[misc]
    """Watches what a `Trainer` of Lightning fits: `Trainer(..., callbacks=[SeismogradCallback()])`.

    It takes the arguments of `seismograd.watch`, and `stop_on`, a severity: the Trainer stops after the step at which
    something as severe was found. `val_loss` is the name under which the module logs its validation loss, if it is
    none of the usual ones. Each `fit()` is a run of its own; `watch` is the newest one's, also when it is over.
    """

    def __init__(
        self, *, stop_on: Severity | str | None = None, val_loss: str | None = None, **watch_arguments: Any
    ) -> None:
        if _Callback is object:
            need("lightning.pytorch", "lightning")
        super().__init__(stop_on=stop_on, **watch_arguments)
        self._validation = VALIDATION if val_loss is None else (val_loss,)
        self._missing = val_loss

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Opens the watch, on the module and its optimizers as they are trained."""
        watch = self.open(pl_module, list(trainer.optimizers) or None, name=type(pl_module).__name__)
        if trainer.global_step:
            watch.note("resumed", f"the Trainer goes on after step {trainer.global_step}: counted from 0 here")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stops the training where that was asked for."""
        if self.wants_stop:
            trainer.should_stop = True

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Takes the validation loss that the module logged."""
        if self.watch is None or not self.watches or trainer.sanity_checking:
            return
        if self.validated(trainer.callback_metrics, self._validation) is None and self._missing is not None:
            there = ", ".join(sorted(trainer.callback_metrics)) or "nothing"
            self._missing, text = None, f"val_loss={self._missing!r} was not logged by the module; there is: {there}"
            self.watch.note("no_validation_loss", text, "warning")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Passes on what the module logged, as series of the run."""
        self.pass_on(trainer.callback_metrics, leave_out=self._validation)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.close(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.close()
