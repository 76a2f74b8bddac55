"""The page of a finding, made from its detector: what it is, why it matters, what to try, its limits."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from seismograd.detectors import DEFAULT
from seismograd.protocols import Detector

_KNOWN = frozenset(detector.id for detector in DEFAULT)
GROUPS = ("numerics", "learning", "loop", "data", "resources", "ranks", "diffusion")
"""The parts of the catalogue, in its order; others follow."""
_UNDERLINED = re.compile(r"^(\S.*)\n-{3,}$", re.MULTILINE)
"""A heading as docstrings have it."""


@dataclass(frozen=True)
class Page:
    """What a person should know about one finding."""

    id: str
    title: str
    body: str
    """Markdown: *Why it matters*, *How it is judged*, *What to try*."""
    needs: tuple[str, ...]
    follows: tuple[str, ...]
    limits: dict[str, Any]
    group: str = "itself"
    """The part of the catalogue it stands in, named as its detector's folder."""

    def markdown(self, level: int = 1) -> str:
        """The whole page, its title as a heading of that level."""
        mark = "#" * level
        parts = [f"{mark} {self.id}", self.title, re.sub(r"^## ", f"{mark}# ", self.body, flags=re.MULTILINE)]
        if self.limits:
            limits = "\n".join(f"- `{name}` = {value!r}" for name, value in self.limits.items())
            parts.append(f"{mark}# Limits\n\n{limits}")
        if self.needs:
            parts.append(f"Needs: {', '.join(f'`{need}`' for need in self.needs)}.")
        if self.follows:
            parts.append(f"May follow from: {', '.join(f'`{cause}`' for cause in self.follows)}.")
        return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


BLIND_PROBE = Page(
    id="blind-probe",
    title="Something that should have been read could not be.",
    body="""
## Why it matters

Silence means health only where there was sight. What this part would have shown is missing from the verdict.

## What to try

The message names the part and its error. If it is a detector or a sink of your own, mend it; if it is one of
Seismograd's, please report it. `watch(..., strict=True)` raises the error where it happens.
""",
    needs=(),
    follows=(),
    limits={},
)
"""The watch speaks of itself."""

LATENT_EXPLOSION = Page(
    id="latent-explosion",
    title="The latents of a diffusion pipeline are far larger than noise and data can be.",
    body="""
## Why it matters

Each denoising step should bring the latents nearer to data. If they grow instead, the image is noise or one colour,
and in float16 they soon are not finite.

## How it is judged

`DiffusionModelDebugger` compares their standard deviation after each step with what noise and data have together at
that step of the scheduler: five times as much is too large, and so is an eighth of float16's largest number. A model
that predicts nothing yet makes them grow, too, as far as the scheduler's tables say: up to five times that it is only
for your information, beyond it a warning.

## What to try

Check that the model predicts what the scheduler takes (`prediction_type`), and that its weights are trained ones.
Lower guidance_scale, or set guidance_rescale. In float16, use bfloat16.

## An example

```
pipe.scheduler = DDIMScheduler(prediction_type="epsilon", clip_sample=False)  # the model was trained on velocities
pipe(prompt, callback_on_step_end=debugger.callback)
```
""",
    needs=(),
    follows=(),
    limits={},
    group="diffusion",
)

PIPELINE_MISMATCH = Page(
    id="pipeline-mismatch",
    title="Two parts of a diffusion pipeline, or the pipeline and the training, do not fit each other.",
    body="""
## Why it matters

A pipeline is put together from parts that were made apart. Where they do not fit, it fails late, or gives noise without
any error: a scheduler that takes the model's velocity for noise raises nothing.

## How it is judged

`DiffusionModelDebugger.analyze_diffusion_pipeline` reads the configs and the parameters, before anything runs: critical
where no image can come out (channels, widths, betas outside of 0 to 1, another prediction_type than the training's), a
warning where it is most likely unmeant (another noise schedule, zero terminal SNR with epsilon, parts on different
devices), for your information where parts have different dtypes.

## What to try

The message names the two parts and their values: take one of them from where the other was trained, as with
`DDIMScheduler.from_config(noise_scheduler.config)`.

## An example

```
noise_scheduler = DDPMScheduler(prediction_type="v_prediction")  # the training
pipe = DDPMPipeline(unet, DDPMScheduler())                       # takes epsilon
debugger.analyze_diffusion_pipeline(pipe, trained_with=noise_scheduler)
```
""",
    needs=(),
    follows=(),
    limits={},
    group="diffusion",
)


def page_of(detector: Detector) -> Page:
    """The page of one detector."""
    docstring = inspect.getdoc(type(detector)) or ""
    title, _, body = docstring.partition("\n\n")
    return Page(
        id=detector.id,
        title=" ".join(title.split()),
        body=_UNDERLINED.sub(r"## \1\n", body),
        needs=tuple(detector.needs),
        follows=tuple(cause for cause in detector.follows if cause in _KNOWN),
        limits=_limits(detector),
        group=_group(detector),
    )


def pages() -> dict[str, Page]:
    """The pages of all findings that Seismograd can make, by id."""
    every = [*map(page_of, DEFAULT), BLIND_PROBE, LATENT_EXPLOSION, PIPELINE_MISMATCH]
    return {page.id: page for page in sorted(every, key=lambda page: page.id)}


def groups() -> dict[str, list[Page]]:
    """The same pages by the part of the catalogue that they stand in."""
    found: dict[str, list[Page]] = {name: [] for name in GROUPS}
    for page in pages().values():
        found.setdefault(page.group, []).append(page)
    return {name: own for name, own in found.items() if own}


def _group(detector: Detector) -> str:
    """The folder of its file; your own ones stand apart."""
    package, _, rest = type(detector).__module__.partition(".detectors.")
    return rest.partition(".")[0] if package == "seismograd" and "." in rest else "your own"


def _limits(detector: Detector) -> dict[str, Any]:
    if not is_dataclass(detector):
        return {}
    return {field.name: getattr(detector, field.name) for field in fields(detector)}
