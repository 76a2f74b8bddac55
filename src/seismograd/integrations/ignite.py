"""`SeismogradHandler`: a watch over an `Engine` of pytorch-ignite."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from seismograd.extras import need
from seismograd.integrations.watching import VALIDATION, Watching
from seismograd.records import Severity

if TYPE_CHECKING:
    from torch import nn


class SeismogradHandler(Watching):
    """Watches what an engine trains: `SeismogradHandler(model, optimizer).attach(trainer, evaluator)`.

    It takes the other arguments of `seismograd.watch`, and `stop_on`, a severity: the engine terminates after the step
    at which something as severe was found. Each `run()` is a run of its own; `watch` is the newest one's, also when it
    is over. Of an evaluator the metric `loss`, or the one that `val_loss` names, is the validation loss.
    """

    def __init__(
        self,
        models: nn.Module | Any,
        optimizers: Any = None,
        *,
        stop_on: Severity | str | None = None,
        val_loss: str | None = None,
        **watch_arguments: Any,
    ) -> None:
        need("ignite.engine", "ignite")
        super().__init__(stop_on=stop_on, **watch_arguments)
        self._models, self._optimizers = models, optimizers
        self._validation = ("loss", *VALIDATION) if val_loss is None else (val_loss,)

    def attach(self, engine: Any, evaluator: Any = None) -> SeismogradHandler:
        """Follows the engine, and takes the validation losses of the evaluator, if one is given.

        The engine's `run` is wrapped: no event tells of Ctrl-C, and whoever listens for errors keeps them from being
        raised.
        """
        events, run = need("ignite.engine", "ignite").Events, engine.run

        @wraps(run)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.open(self._models, self._optimizers)
            try:
                return run(*args, **kwargs)
            except BaseException as error:
                self.close(error)
                raise
            finally:
                self.close()

        engine.run = watched
        engine.add_event_handler(events.ITERATION_COMPLETED, self._iterated)
        engine.add_event_handler(events.EPOCH_COMPLETED, self._epoch_over)
        if evaluator is not None:
            evaluator.add_event_handler(events.COMPLETED, self._evaluated)
        return self

    def _iterated(self, engine: Any) -> None:
        if self.wants_stop:
            engine.terminate()

    def _epoch_over(self, engine: Any) -> None:
        self.pass_on(engine.state.metrics)

    def _evaluated(self, evaluator: Any) -> None:
        metrics = evaluator.state.metrics
        found = self.validated(metrics, self._validation)
        self.pass_on({f"evaluator/{name}": value for name, value in metrics.items() if name != found})
