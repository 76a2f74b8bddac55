"""`SeismogradTracker`: a tracker of Accelerate that watches the loop, and takes what the loop logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seismograd.complaints import complain
from seismograd.extras import need
from seismograd.integrations.watching import VALIDATION, as_number

if TYPE_CHECKING:
    from seismograd.training import TrainingDebugger

try:
    from accelerate.tracking import GeneralTracker as _GeneralTracker
except ModuleNotFoundError:  # said when a tracker is made
    _GeneralTracker = object


class SeismogradTracker(_GeneralTracker):  # type: ignore[misc]
    """A tracker for `Accelerator(log_with=SeismogradTracker())`; it takes the arguments of `seismograd.watch`.

    `watch(model, optimizer)`, called with what `accelerator.prepare` returned, opens the watch. What `accelerator.log`
    is given becomes series of the run, `accelerator.end_training()` ends it.
    """

    name = "seismograd"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, **watch_arguments: Any) -> None:
        need("accelerate", "accelerate")
        super().__init__()
        self._arguments = watch_arguments
        self._config: dict[str, Any] = {}
        self._watch: TrainingDebugger | None = None
        self._complained = False

    @property
    def tracker(self) -> TrainingDebugger | None:
        """The watch; `None` until `watch()` was called."""
        return self._watch

    def watch(self, models: Any, optimizers: Any = None) -> TrainingDebugger:
        """Opens the watch, which is also a context manager: then it ends where an error leaves the loop, too."""
        from seismograd.training import watch

        self.finish()
        self._watch = watch(models, optimizers, **self._arguments)
        self._tell_config()
        return self._watch

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Notes the configuration in the run's record."""
        self._config = dict(values)
        self._tell_config()

    def log(self, values: Mapping[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Puts numbers into the next reading; a validation loss counts as one. Texts are left out."""
        if self._watch is None or self._watch.closed:
            if not self._complained and self._watch is None:
                self._complained = True
                complain("seismograd: nothing is watched yet: call tracker.watch(model, optimizer) after prepare()")
            return
        for name, value in values.items():
            number = as_number(value)
            if number is not None and name in VALIDATION:
                self._watch.validate(number)
            elif number is not None:
                self._watch.log(f"logged/{name}", number)

    def finish(self) -> None:
        """Ends the watch, if one is open."""
        if self._watch is not None and not self._watch.closed:
            self._watch.close()

    def _tell_config(self) -> None:
        if self._watch is not None and self._config:
            config, self._config = self._config, {}
            self._watch.note("configuration", ", ".join(f"{name}={value}" for name, value in config.items()))
