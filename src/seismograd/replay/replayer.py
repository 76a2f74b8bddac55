"""Stands by while a loop trains: records each step, and runs it again when it turns out bad."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from seismograd.places import Spot, is_users, spot_of
from seismograd.probes.watched import Watched
from seismograd.records import Origin, Reading
from seismograd.replay.investigation import Investigation
from seismograd.replay.live import STEPS, Live, can_trace
from seismograd.replay.numbers import is_bad
from seismograd.replay.recorder import Recorder, Step
from seismograd.replay.rewind import swapped
from seismograd.replay.updates import blame_update

T = TypeVar("T")
Capture = Callable[[Step, Mapping[str, nn.Module], Reading, Origin], Origin]

_MOST_INSIGHTS = 6
"""So often in one run a step with finite trouble is run again."""

_FEW = 4
"""With more calls than that and no backward yet, the loop goes through time: nothing was abandoned."""

_MOST_BYTES = 256 * 2**20
"""Parameters up to this size, all together, are copied before each update where readings come a step late."""


class Replayer:
    """One loop's recorder, and what is done with what it keeps.

    With `lag` a reading comes when its step is over and the weights have moved on: then the state before the update is
    kept, if it is small enough.
    """

    def __init__(self, recorder: Recorder, watched: Watched, *, lag: int, capture: Capture | None = None) -> None:
        self.recorder = recorder
        self._watched, self._lag, self._capture = watched, lag, capture
        self._live: Live | None = None
        self._may_trace = True
        self._insights = 0
        self._shadow: list[tuple[Tensor, Tensor]] | None = None
        self._bad: Reading | None = None
        """The last one that was investigated."""

    # -- what the loop does --------------------------------------------------------------------------------------

    def forbid_tracing(self) -> None:
        """Several threads call the models: a mode that is entered on one cannot be left on another."""
        self._may_trace = False

    @property
    def looks_on(self) -> bool:
        """Whether what runs now is traced."""
        return self._live is not None and self._live.entered

    def look_away(self, *, for_good: bool = False) -> None:
        """No op is traced from now on, until the next forward or backward pass."""
        if self._live is not None:
            self._live.leave()
            self._live = None if for_good else self._live

    def abandoned(self, *, ended: bool = False) -> tuple[float, Origin] | None:
        """A loss that is not finite and on which the loop called no backward: what it was, and where it was made.

        So it is where the same line calls the model again, or the script has ended, and a bad loss is still bound to a
        name there.
        """
        calls = [call for call in self.recorder.step.calls if call.ours]
        if not 0 < len(calls) <= _FEW or self.recorder.step.glues or not calls[-1].spots or self._lag:
            return None
        loss = _bad_loss(_at_the_end(calls[-1].spots) if ended else _at_the_same_line(calls[-1].spots))
        if loss is None:
            return None
        self.recorder.lines.disarm()
        step = Step(list(self.recorder.step.calls), [self.recorder.glue_of([loss])])
        origin = Investigation(step, self._watched.models, finite_loss=False).origin()
        self.recorder.step_over()
        return float(loss), origin

    def module_starts(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], ours: bool) -> None:
        self.recorder.module_starts(module, args, kwargs, ours)
        if self._live is not None and self._may_trace:
            self._live.module_starts(module, args, kwargs)

    def module_ended(self, output: Any) -> None:
        if self._live is not None:
            self._live.module_ended(output)
        self.recorder.module_ended(output)

    def module_failed(self) -> None:
        if self._live is not None:
            self._live.module_ended()
        self.recorder.module_failed()

    def backward_starts(self, roots: Sequence[Any]) -> None:
        self.recorder.backward_starts(roots)
        if self._live is not None and self._may_trace:
            self._live.backward_starts()

    def backward_ended(self) -> None:
        if self._live is not None:
            self._live.leave()
        self.recorder.backward_ended()

    def gradients_start(self, roots: Sequence[Any]) -> None:
        """`autograd.grad`: the loop may give these gradients to its parameters itself."""
        self.recorder.gradients_start(roots)

    def not_ours(self) -> None:
        """The backward pass that just ended was of something else that is trained beside."""
        self.recorder.forget_newest()

    def before_update(self) -> None:
        """An optimizer is about to change the weights, and the reading of this step comes only later."""
        if not self._lag or not self.recorder.on:
            return
        parameters = [p for p in self._watched.roster.parameters if p.layout == torch.strided]
        if sum(p.numel() * p.element_size() for p in parameters) > _MOST_BYTES:
            self._shadow = None
        elif self._shadow is None or [id(p) for p, _ in self._shadow] != [id(p) for p in parameters]:
            self._shadow = [(p, p.detach().clone()) for p in parameters]
        else:
            for parameter, copy in self._shadow:
                copy.copy_(parameter)

    def after_update(self) -> None:
        """The optimizer has stepped: nothing of the user's is kept beyond that, unless a reading is still to come."""
        if not self._lag:
            self.recorder.forget_used()

    def evaluation_over(self) -> None:
        """One evaluation of a line search is over, and the next one begins."""
        if self.recorder.step.glues:
            self.recorder.step_over()

    def step_over(self, records: bool) -> None:
        """The next step begins; `records` says whether it will be read, and so recorded."""
        self.recorder.step_over(keeps=bool(self._lag))
        self.resume(records)
        if self._live is not None and not self._live.step_over():
            self._live = None

    def resume(self, records: bool) -> None:
        self.recorder.on = records
        if records:
            self.recorder.arm()
        else:
            self.recorder.lines.disarm()

    def close(self) -> None:
        if self._live is not None:
            self._live.leave()
        self._live = self._shadow = None
        self.recorder.close()

    # -- what is asked of it -------------------------------------------------------------------------------------

    def investigate(self, reading: Reading, sound: Reading | None) -> Origin | None:
        """Where what is not finite in this reading was made. `sound` is the last reading in which all was finite."""
        self.recorder.lines.disarm()
        step = self.recorder.before if self._lag else self.recorder.step
        blamed, earlier, self._bad = None, self._bad, reading
        if not self._lag and sound is not None and _spoilt(earlier, sound.step, reading.step):
            return Origin("", note="the gradients of the reading before were not finite already", sure=False)
        if not self._lag or any(is_bad(copy) for _, copy in self._shadow or ()):
            blamed = blame_update(reading, sound, self._watched)
        with swapped(self._shadow) if self._shadow is not None else nullcontext():
            origin = blamed or self._origin(step, reading)
            if self._capture is None or (self._lag and self._shadow is None):  # those weights are not the step's
                return origin
            return self._capture(step, self._watched.models, reading, origin)

    def with_step(self, reading: Reading, act: Callable[[Step, Mapping[str, nn.Module], Reading], T]) -> T | None:
        """What `act` makes of the step of this reading, with the weights that it had; `None` if it was not recorded."""
        step = self.recorder.before if self._lag else self.recorder.step
        if not step.calls or not step.glues:
            return None
        if self._lag and self._shadow is None:
            raise ValueError("readings come a step late (lag=1), and the weights are too large to be kept until then")
        self.recorder.lines.disarm()
        with swapped(self._shadow) if self._shadow is not None else nullcontext():
            return act(step, self._watched.models, reading)

    def _origin(self, step: Step, reading: Reading) -> Origin:
        if self._lag and self._shadow is None:
            why = "the reading came a step late (lag=1), and the weights before the update were too large to be kept"
            origin = Origin("", note=why, sure=False)
        else:
            scalars = reading.plain().scalars
            origin = Investigation(
                step,
                self._watched.models,
                finite_loss=math.isfinite(scalars.get("loss", 0.0)),
                scale=scalars.get("amp/scale") or 1.0,
            ).origin()
        if origin.phase or "amp/scale" in reading.plain().scalars:
            return origin  # seen as it runs, a gradient is scaled: what overflows only because of that is no fault
        if self._live is not None:
            seen = self._live.origin(self._gradients(), [loss for glue in step.glues for loss in glue.losses])
            return origin if seen is None else replace(seen, note="seen while the step was traced")
        if self._may_trace and can_trace():
            self._live = Live(self._watched.models)
            return replace(origin, note=f"{origin.note}; the next {STEPS} steps are traced, should it come again")
        return origin

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self._watched.roster.parameters if p.grad is not None]

    def insight(self) -> dict[str, Any]:
        """How the gradient of the present step changes from module to module, and which samples carry its loss."""
        if self._lag or not self.recorder.step.glues or self._insights >= _MOST_INSIGHTS:
            return {}
        self._insights += 1
        return Investigation(self.recorder.step, self._watched.models, finite_loss=True).insight()


def _spoilt(earlier: Reading | None, sound: int, now: int) -> bool:
    """Whether the weights were made bad by the gradients of a reading between these steps: as in ranks, of which
    another began it, what was at fault there is not known here."""
    if earlier is None or not sound < earlier.step < now:
        return False
    return "nonfinite" in earlier.tensors and "amp-skipped" not in earlier.marks


def _bad_loss(names: Mapping[str, Any]) -> Tensor | None:
    """A number with a graph, not finite, that is bound to a name. Only where no device has to be waited for."""
    for value in names.values():
        if not isinstance(value, Tensor) or value.numel() != 1 or value.grad_fn is None or value.is_complex():
            continue
        if value.device.type == "cpu" and not math.isfinite(value.item()):
            return value
    return None


def _at_the_same_line(spots: Sequence[Spot]) -> Mapping[str, Any]:
    """What is bound where the model is called, if that is the same line again."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return {} if frame is None or spot_of(frame) != spots[0] else frame.f_locals


def _at_the_end(spots: Sequence[Spot]) -> Mapping[str, Any]:
    """What is bound in the script that has ended, if that called the model itself."""
    main = sys.modules.get("__main__")
    is_script = spots[0].code.co_name == "<module>" and main is not None
    return vars(main) if is_script and getattr(main, "__file__", None) == spots[0].code.co_filename else {}
