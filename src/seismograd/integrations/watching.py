"""What the callbacks of all frameworks have in common: a watch that is opened and closed with the training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from seismograd.records import Severity

if TYPE_CHECKING:
    from seismograd.training import TrainingDebugger

VALIDATION = ("val_loss", "val/loss", "valid_loss", "validation_loss", "validation/loss", "eval_loss", "eval/loss")
"""Under these names people log the loss of an evaluation."""


class Watching:
    """Holds the arguments of `seismograd.watch`, and the watch of the newest training, also when that is over.

    With `stop_on`, a severity, the training is to stop after the step at which something as severe was found.
    """

    watch: TrainingDebugger | None = None

    def __init__(self, *, stop_on: Severity | str | None = None, **watch_arguments: Any) -> None:
        self._stop_on = None if stop_on is None else Severity(stop_on)
        self._arguments = watch_arguments

    @property
    def watches(self) -> bool:
        """Whether a training goes on that is watched."""
        return self.watch is not None and not self.watch.closed

    @property
    def wants_stop(self) -> bool:
        """Whether something was found for which the training is to stop."""
        if self._stop_on is None or self.watch is None:
            return False
        return any(finding.severity.weight >= self._stop_on.weight for finding in self.watch.findings)

    def open(self, models: Any, optimizers: Any, **more: Any) -> TrainingDebugger:
        """A training begins: the watch of one that was left open ends."""
        from seismograd.training import watch

        self.close()
        self.watch = watch(models, optimizers, **{**more, **self._arguments})
        return self.watch

    def pass_on(self, values: Mapping[str, Any], leave_out: Iterable[str] = ()) -> None:
        """Makes the framework's own numbers series of the run, as `logged/NAME`; tensors are not waited for."""
        if self.watch is None or not self.watches:
            return
        for name, value in values.items():
            if name not in leave_out and (number := as_number(value)) is not None:
                self.watch.log(f"logged/{name}", number)

    def validated(self, values: Mapping[str, Any], names: Iterable[str] = VALIDATION) -> str | None:
        """Takes the first of these that there is as the validation loss; its name."""
        found = next((name for name in names if name in values), None)
        value = None if found is None else as_number(values[found])
        if self.watch is not None and self.watches and value is not None:
            self.watch.validate(value)
        return found

    def close(self, error: BaseException | None = None) -> None:
        """Ends the watch, if one is open; with the error that ended the training, if it was one."""
        if self.watch is not None and not self.watch.closed:
            self.watch.__exit__(None if error is None else type(error), error, None)


def as_number(value: Any) -> Any:
    """A number, or a tensor of one, as it is; `None` for everything else."""
    if isinstance(value, str) or getattr(value, "numel", lambda: 1)() != 1:
        return None
    if hasattr(value, "detach"):
        return value.detach().float()
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
