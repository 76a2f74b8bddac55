"""`DiffusionModelDebugger`: pipelines before and while they run, and the training of diffusion models."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from seismograd.debugger.journal import Journal
from seismograd.integrations.diffusion import components, culprits, latents, mismatches
from seismograd.integrations.diffusion.calls import Taken
from seismograd.integrations.diffusion.figures import latents_figure, timestep_figure
from seismograd.integrations.diffusion.schedulers import describe_scheduler, setting
from seismograd.integrations.diffusion.targets import Targets
from seismograd.integrations.diffusion.timesteps import LossByTimestep
from seismograd.integrations.diffusion.watching import PipelineWatch
from seismograd.judge import Judge, ranked
from seismograd.logger import LogLevel
from seismograd.records import DebugLevel, Finding, Origin, Severity, strict
from seismograd.replay.numbers import tensors_in

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from seismograd.training import TrainingDebugger

_LEVELS = {Severity.INFO: LogLevel.INFO, Severity.WARNING: LogLevel.WARNING, Severity.CRITICAL: LogLevel.ERROR}
_TIMESTEPS = 1000.0


class DiffusionModelDebugger:
    """Looks at a diffusion pipeline before it runs and while it runs, and at the training of its model.

    - `level`: on `extreme` the output of every component is described in `debug_history`, too.
    - `scheduler`, `vae`: of the training: the noise schedule, and whose latents they are.
    - `watch`: what `sg.watch` returned. Its run takes what is found here, events of the steps, and the loss by
      timestep; without one it is the watch that is open, if there is just one.
    - `replay`: whether a component whose output is not finite is run again to say where in it that began.
    - `logger`: a `logging.Logger`, or an object with `log_info`, `log_warning`, `log_error`.
    - `history`: how many steps and events are kept; older ones are dropped.
    - `buckets`: into how many parts the timesteps of a training are divided.
    """

    def __init__(
        self,
        level: DebugLevel | str = DebugLevel.ADVANCED,
        *,
        scheduler: Any = None,
        vae: Any = None,
        watch: TrainingDebugger | None = None,
        replay: bool = True,
        logger: Any = None,
        history: int = 1000,
        buckets: int = 10,
    ) -> None:
        if buckets < 1:
            raise ValueError(f"buckets={buckets!r} divides nothing: give how many parts the timesteps have, 10 say")
        self.level = DebugLevel.of(level)
        self.scheduler, self.vae, self.replay = scheduler, vae, replay
        self._watch, self._buckets = watch, buckets
        self._journal = Journal(logger, history)
        self.steps: deque[dict[str, Any]] = deque(maxlen=history)
        """The latents after each denoising step, the oldest first."""
        self.watched: list[PipelineWatch] = []
        """The pipelines that are being watched at present."""
        self._forget()

    def _forget(self) -> None:
        self._judge = Judge([])
        self._anomalies = 0
        self._calls: Counter[str] = Counter()
        self._explained: dict[str, Finding] = {}
        self._first: dict[str, Any] | None = None
        self._last: dict[str, Any] | None = None
        self._before: dict[str, Any] | None = None
        self._last_good: str | None = None
        self._losses: LossByTimestep | None = None
        self._targets = Targets()
        self._training_steps = 0
        self.first_bad: dict[str, Any] | None = None
        """Where what is not finite began: `component`, `step`, `timestep`."""

    # -- a pipeline before it runs -------------------------------------------------------------------------------

    def analyze_diffusion_pipeline(self, pipeline: Any, trained_with: Any = None) -> dict[str, Any]:
        """The components and the scheduler in numbers, and what does not fit.

        `trained_with` is the noise scheduler of the training, with which the pipeline's own is compared; the
        debugger's `scheduler` where it is left out.
        """
        parts = components.parts_of(pipeline)
        told = {name: components.describe_component(part) for name, part in parts.items()}
        models = {id(part): name for name, part in parts.items() if isinstance(part, nn.Module)}
        trained_with = self.scheduler if trained_with is None else trained_with
        found = [components.bad_parameters(name, parts[name]) for name in models.values()]
        found += mismatches.mismatches(pipeline, parts, told, trained_with)
        findings = [self._report(finding) for finding in found if finding is not None]
        scheduler, once = parts.get("scheduler"), [told[name] for name in models.values()]
        analysis: dict[str, Any] = {
            "pipeline": type(pipeline).__name__,
            "total_parameters": sum(each["parameters"] for each in once),
            "trainable_parameters": sum(each["trainable_parameters"] for each in once),
            "memory_bytes": sum(each["memory_bytes"] for each in once),
            "components": told,
            "scheduler": None if scheduler is None else describe_scheduler(scheduler),
            "trouble": [finding.message for finding in findings],
            "findings": [finding.to_dict() for finding in findings],
        }
        self._journal.log("diffusion_pipeline", f"{analysis['pipeline']}: {len(findings)} findings", {})
        return analysis

    # -- while it runs -------------------------------------------------------------------------------------------

    def monitor_diffusion_step(self, pipeline: Any, step: int, latents: Any, timestep: Any = None) -> dict[str, Any]:
        """The statistics of the latents after a denoising step, and what is wrong with them.

        Of what a model or `scheduler.step` gives back (a tuple, an object with `sample`) it is the first tensor.
        """
        tensor = next((each for _, each in tensors_in(latents, "latents")), None)
        if tensor is None:
            raise TypeError(f"there is no tensor in this {type(latents).__name__}: give the latents after the step")
        scheduler = getattr(pipeline, "scheduler", None)
        record = self.note_latents(scheduler, step, tensor, timestep)
        return self.judge_latents(record, scheduler, tensor.dtype)

    def callback(self, pipeline: Any, step: int, timestep: Any, callback_kwargs: dict[str, Any]) -> dict[str, Any]:
        """For `pipe(..., callback_on_step_end=debugger.callback)`; changes nothing."""
        given = callback_kwargs.get("latents")
        if isinstance(given, Tensor) and not any(each.pipeline is pipeline for each in self.watched):
            self.monitor_diffusion_step(pipeline, step, given, timestep)
        return callback_kwargs

    def callback_with(self, users: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        """A callback that looks at the latents and then calls the user's own, whose answer it gives back.

        An object with `tensor_inputs`, as diffusers' own callbacks are, has to be asked for these:
        `callback_on_step_end_tensor_inputs=["latents", *users.tensor_inputs]`.
        """

        def both(pipeline: Any, step: int, timestep: Any, callback_kwargs: dict[str, Any]) -> dict[str, Any]:
            self.callback(pipeline, step, timestep, callback_kwargs)
            return users(pipeline, step, timestep, callback_kwargs)

        return both

    def watch_pipeline(self, pipeline: Any) -> AbstractContextManager[PipelineWatch]:
        """A context: what each component gives back is looked at, the first that is not finite is named, with the
        layer and the op in it that made it. Latents are looked at after every step of the scheduler."""
        return PipelineWatch(self, pipeline)

    # -- training ------------------------------------------------------------------------------------------------

    def training_step(
        self,
        timesteps: Tensor,
        losses: Tensor,
        *,
        latents: Tensor | None = None,
        noise: Tensor | None = None,
        target: Tensor | None = None,
        step: int | None = None,
    ) -> dict[str, Any]:
        """Takes the losses of a training step in, one for each sample, by their timesteps.

        Losses that were not reduced are averaged over each sample. With `latents` (before noise is added), `noise` and
        `target` it is seen whether these are what the scheduler wants. The device is waited for once.
        """
        per_sample = _per_sample(timesteps, losses)
        own = self._targets.pack(self.scheduler, timesteps, latents, noise, target)
        at = timesteps.detach().reshape(-1).to(per_sample.device)
        packed = [at.to(per_sample.dtype), per_sample, torch.stack([one.to(per_sample.device) for one in own])]
        numbers = torch.cat([one.to(per_sample.dtype) for one in packed]).tolist()  # the only sync
        count = len(per_sample)
        number = self._training_steps if step is None else step
        self._training_steps += 1
        table = self._table(timesteps, numbers[:count])
        bad = table.add(numbers[:count], numbers[count : 2 * count])
        found = [table.nonfinite(bad, self.scheduler, number), table.runaway(number)]
        found.append(table.worse_than_nothing(self.scheduler, number))
        found += self._targets.judge(numbers[2 * count :], self.scheduler, self.vae, number)
        findings = [self._report(finding) for finding in found if finding is not None]
        self._log_losses(table)
        return {
            "step": number,
            "loss": sum(numbers[count : 2 * count]) / count,
            "nonfinite": [timestep for timestep, _ in bad],
            "anomalies": [finding.id for finding in findings],
        }

    def loss_by_timestep(self) -> list[dict[str, Any]]:
        """A row for each bucket of timesteps: samples, the running loss, what it was at first."""
        return [] if self._losses is None else self._losses.table()

    def timestep_table(self) -> str:
        """The same as text."""
        return "no training step was seen yet" if self._losses is None else self._losses.lines()

    def plot_loss_by_timestep(self) -> Figure:
        """The same as a plotly figure: `.write_html(path)`, `.show()`."""
        return timestep_figure(self.loss_by_timestep())

    def plot_latents(self) -> Figure:
        """The latents over the denoising steps that are kept, as a plotly figure."""
        return latents_figure(list(self.steps))

    # -- what was seen -------------------------------------------------------------------------------------------

    @property
    def findings(self) -> list[Finding]:
        """What was found so far, in the order in which it should be read."""
        return ranked(self._judge.findings)

    @property
    def debug_history(self) -> list[dict[str, Any]]:
        """The last events, the oldest first."""
        return self._journal.events

    def summary(self) -> dict[str, Any]:
        """What was done and seen so far, in numbers, as strict JSON."""
        told: dict[str, Any] = strict(
            {
                "level": self.level,
                "total_anomalies": self._anomalies,
                "debug_history_length": len(self._journal.events),
                "diffusion_steps": len(self.steps),
                "training_steps": self._training_steps,
                "component_calls": dict(self._calls),
                "first_bad": self.first_bad,
                "findings": [finding.id for finding in self.findings],
                "loss_by_timestep": self.loss_by_timestep(),
            }
        )
        return told

    get_debug_summary = summary

    def clear_debug_history(self) -> None:
        """Forgets everything that was kept, and starts the counters again."""
        self._journal.clear()
        self.steps.clear()
        self._forget()

    # -- heard from the watch of a pipeline ----------------------------------------------------------------------

    def loop_begins(self, scheduler: Any) -> None:
        """The timesteps of a denoising loop were set."""
        self._first = self._last = None

    def component_called(self, component: str, outputs: list[Tensor], step: int) -> None:
        self._calls[component] += 1
        if self.level is DebugLevel.EXTREME and outputs:
            told, _ = latents.statistics(outputs[0])
            self._journal.log("diffusion_component", component, {"step": step, **told}, LogLevel.DEBUG)

    def component_passed(self, component: str) -> None:
        """What it gave back was finite."""
        self._last_good = component

    def component_failed(self, taken: Taken, output: Any, models: Mapping[str, nn.Module], step: int) -> None:
        """What it gave back is not finite."""
        known = self._explained.get(taken.shown)
        if known is not None:
            self._report(replace(known, step=step, last_step=step))
            return
        inputs = taken.bad_inputs()
        if inputs and self.first_bad is not None:
            return  # it only passes on what another one made
        timestep = self._timestep(taken)
        if inputs:
            finding = culprits.between(taken, inputs, self._last_good, step, timestep)
        else:
            origin = taken.origin(output, models) if self.replay else Origin("", note="replay=False")
            finding = culprits.culprit(taken, origin, step, timestep)
        self._explained[taken.shown] = finding
        if self.first_bad is None:
            self.first_bad = {"component": taken.shown, "step": step, "timestep": timestep, "finding": finding.id}
        self._report(finding)

    def image_decoded(self, component: str, image: Tensor, step: int) -> None:
        finding = latents.one_colour(component, image, step)
        if finding is not None:
            self._report(finding)

    def note_latents(self, scheduler: Any, step: int, tensor: Tensor, timestep: Any) -> dict[str, Any]:
        """Keeps the statistics of latents after a step."""
        given = timestep if isinstance(timestep, (int, float, Tensor)) else None
        told, (at,) = latents.statistics(tensor, given)
        record = {"step": int(step), "timestep": at, **told, "anomalies": []}
        if self._last is not None and step <= self._last["step"]:
            self._first = None
        self._before, self._last = self._last if self._first is not None else None, record
        if self._first is None:
            self._first = record
        self.steps.append(record)
        return record

    def judge_latents(self, record: dict[str, Any], scheduler: Any, dtype: torch.dtype) -> dict[str, Any]:
        """What is wrong with latents that were noted just before."""
        assert self._first is not None
        bad = None
        if self.first_bad is None:  # else the component is known that made it
            bad = latents.nonfinite_latents(record, self._before)
        found = [
            bad,
            None
            if record["has_nan"] or record["has_inf"]
            else latents.explosion(record, self._first, scheduler, dtype),
        ]
        findings = [self._report(finding) for finding in found if finding is not None]
        record["anomalies"] = [finding.id for finding in findings]
        sick = bool(findings) or record["has_nan"] or record["has_inf"]
        message = "" if record["std"] is None else f"std {record['std']:.4g}"
        self._note("diffusion_step", f"step {record['step']}: {message}", record, sick)
        return record

    # -- inside --------------------------------------------------------------------------------------------------

    def _timestep(self, taken: Taken) -> float | None:
        """The timestep that a call was given, if it was given one."""
        given = taken.kwargs.get("timestep", taken.args[1] if len(taken.args) > 1 else None)
        if taken.method in ("decode", "encode") or isinstance(given, bool):
            return None
        if isinstance(given, (int, float)) or (isinstance(given, Tensor) and given.numel() > 0 and given.ndim < 2):
            return float(given.reshape(-1)[0]) if isinstance(given, Tensor) else float(given)
        return None

    def _table(self, timesteps: Tensor, at: list[float]) -> LossByTimestep:
        if self._losses is None:
            top = setting(self.scheduler, "num_train_timesteps", _TIMESTEPS)
            shares = timesteps.is_floating_point() and max(at) <= 1
            self._losses = LossByTimestep(1.0 if shares else float(top), self._buckets)
        return self._losses

    def _report(self, finding: Finding) -> Finding:
        """Takes a finding in, and tells the run of it."""
        if finding.severity is not Severity.INFO:
            self._anomalies += 1
        known = any(other.key == finding.key for other in self._judge.findings)
        merged = self._judge.add(finding)
        if not known:
            self._journal.log(
                finding.id.replace("-", "_"), finding.message, finding.evidence, _LEVELS[finding.severity]
            )
        watch = self._run()
        if watch is not None:
            evidence = {**finding.evidence, "diffusion_step": finding.step}
            step = max(watch.newest_step, 0)
            watch.found(replace(finding, step=step, last_step=step, evidence=evidence))
        return merged

    def _note(self, kind: str, message: str, data: Mapping[str, Any], sick: bool) -> None:
        self._journal.log(kind, message, data, LogLevel.WARNING if sick else LogLevel.DEBUG)
        watch = self._run()
        if watch is not None:
            watch.note(kind, message, "warning" if sick else "debug", **strict(dict(data)))

    def _log_losses(self, table: LossByTimestep) -> None:
        watch = self._run()
        if watch is not None and watch.loop is not None:
            for bucket in table.buckets:
                if bucket.count:
                    watch.log(f"loss/timestep/{bucket.label}", bucket.recent)

    def _run(self) -> TrainingDebugger | None:
        """The watch that is told."""
        if self._watch is not None:
            return None if self._watch.closed else self._watch
        from seismograd.training import watches

        own = [each for each in list(watches) if not each.closed]
        return own[0] if len(own) == 1 else None


def _per_sample(timesteps: Tensor, losses: Tensor) -> Tensor:
    count = timesteps.numel()
    if losses.ndim == 0 or losses.shape[0] != count:
        raise ValueError(
            f"there are {count} timesteps and losses of shape {tuple(losses.shape)}: give one loss for each sample,"
            ' F.mse_loss(prediction, target, reduction="none").mean(dim=(1, 2, 3))'
        )
    if not count:
        raise ValueError("the batch is empty: give at least one timestep and its loss")
    values = losses.detach()
    wide = torch.float32 if values.element_size() <= 4 else values.dtype
    return values.to(wide).reshape(count, -1).mean(1)
