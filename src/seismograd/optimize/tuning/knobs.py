"""The knobs that are turned: each changes one thing of a setup, and knows the lines that do the same in a script."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from seismograd.onlookers.resources.processors import allowed_processors
from seismograd.optimize.autocasting import narrow_dtype, scaler_for
from seismograd.optimize.models import optimized
from seismograd.optimize.modes import OptimizationMode
from seismograd.optimize.tuning.setups import PRECISIONS, Bench, Setup, rebuilt, settings_put_back
from seismograd.replay.numbers import tensors_in

PLACES = ("settings", "loader", "model", "optimizer", "loop")
"""Where a line belongs, in the order in which they stand in a script."""


@dataclass(frozen=True, eq=False)
class Knob:
    """One thing that may make training faster."""

    name: str
    kind: str
    """Of two knobs of one kind only one can be turned."""
    turn: Callable[[Setup], object]
    lines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The lines that do the same, by their place."""
    dtype: torch.dtype | None = None
    """The type that it makes the model compute in, if that is a coarser one and does not show in the setup."""
    draws: bool = False
    """Whether it may draw other random numbers than the baseline."""
    compiles: bool = False
    loads: bool = False
    """Whether it changes how batches are loaded, which shows only with the loader in the loop."""
    merged: int = 1
    """So many batches become one."""


@dataclass(frozen=True)
class Variant:
    """Knobs that are turned together."""

    knobs: tuple[Knob, ...] = ()

    @property
    def name(self) -> str:
        return " + ".join(knob.name for knob in self.knobs) or "baseline"

    @property
    def kinds(self) -> set[str]:
        return {kind for knob in self.knobs for kind in knob.kind.split()}

    def dtype(self, setup: Setup) -> torch.dtype | None:
        """The coarsest of their types, and of those that the setup has by now."""
        said = [knob.dtype for knob in self.knobs if knob.dtype]
        return max([*said, *setup.dtypes], key=lambda kind: torch.finfo(kind).eps, default=None)

    @property
    def draws(self) -> bool:
        return any(knob.draws for knob in self.knobs)

    @property
    def compiles(self) -> bool:
        return any(knob.compiles for knob in self.knobs)

    @property
    def loads(self) -> bool:
        return any(knob.loads for knob in self.knobs)

    @property
    def merged(self) -> int:
        return max((knob.merged for knob in self.knobs), default=1)

    def with_knob(self, knob: Knob) -> Variant:
        return Variant((*self.knobs, knob))

    def turned(self, setup: Setup) -> Setup:
        """The setup with all its knobs turned: what compiles comes last, so that it sees all of the others."""
        threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
        with settings_put_back():  # what is set for the whole process is this variant's alone
            for knob in sorted(self.knobs, key=lambda knob: knob.compiles):
                knob.turn(setup)
            if torch.get_num_threads() != threads:
                setup.threads = torch.get_num_threads()
            if torch.get_float32_matmul_precision() != precision:
                setup.precision = torch.get_float32_matmul_precision()
        own, held = {id(one) for one in setup.model.parameters()}, {id(one) for one in setup.trained.parameters()}
        if own != held:  # a variant put another model in its place
            setup.trained = setup.model
        return setup

    @property
    def code(self) -> str:
        """The lines to paste."""
        lines: list[str] = []
        for place in PLACES:
            own = [line for knob in self.knobs for line in knob.lines.get(place, ())]
            if own and place == "loop":
                own = ["# in the loop:", *sorted(own, key=lambda line: line.startswith(("with ", " ")))]
            lines += own
        imports = [line for line in dict.fromkeys(lines) if line.startswith(("import ", "from "))]
        return "\n".join([*imports, *(line for line in lines if line not in imports)])


def knobs_for(bench: Bench) -> tuple[list[Knob], dict[str, str]]:
    """The knobs that this training has, the most promising first, and those it has not, with the reason."""
    found: list[Knob] = []
    missing: dict[str, str] = {}
    for knob in _all(bench):
        if isinstance(knob, Knob):
            found.append(knob)
        else:
            missing.setdefault(*knob)
    return sorted(found, key=lambda knob: knob.name == OptimizationMode.FULL_OPTIMIZATION.value), missing


def given(variants: Any) -> list[Knob]:
    """The user's own variants: knobs, or a dict of functions that change a setup, by name."""
    if variants is None:
        return []
    if isinstance(variants, Mapping):
        variants = [
            Knob(str(name), "-".join(str(name).split()), turn, {"settings": (f"# your variant {str(name)!r}",)})
            for name, turn in variants.items()
        ]
    own = list(variants)
    for knob in own:
        if not isinstance(knob, Knob):
            raise TypeError(
                f"variants holds {knob!r}: give a dict of functions by name, each of which changes the setup that it is"
                " given, or seismograd.optimize.tuning.knobs.Knob objects"
            )
        if not callable(knob.turn):
            raise TypeError(f"the variant {knob.name!r} is {knob.turn!r}: give a function that changes a setup")
    return own


Missing = tuple[str, str]


def _all(bench: Bench) -> Iterator[Knob | Missing]:
    yield from _threads(bench)
    yield from _optimizers(bench)
    yield from _layouts(bench)
    yield from _precisions(bench)
    yield from _modes(bench)
    yield from _loaders(bench)


# -- the optimizer ---------------------------------------------------------------------------------------------------


def _optimizers(bench: Bench) -> Iterator[Knob | Missing]:
    optimizer = bench.optimizer
    takes = inspect.signature(type(optimizer).__init__).parameters
    for way in ("fused", "foreach"):
        name = f"{way} optimizer"
        if way not in takes or way not in optimizer.defaults:
            yield name, f"{type(optimizer).__name__} does not take it"
        elif all(group.get(way) for group in optimizer.param_groups):
            yield name, "it is on already"
        elif way == "foreach" and bench.device.type == "cuda":
            yield name, "it is the default on this device"
        else:
            yield Knob(name, "optimizer", _way(way), {"optimizer": (_constructed(optimizer, bench.model, way),)})


def _way(way: str) -> Callable[[Setup], None]:
    def turn(setup: Setup) -> None:
        fused = way == "fused"
        optimizer: Any = setup.optimizer
        for group in (optimizer.defaults, *optimizer.param_groups):
            group["fused"], group["foreach"] = (True, False) if fused else (False, True)
        if fused:
            optimizer._step_supports_amp_scaling = True
            for parameter, state in optimizer.state.items():
                if isinstance(state.get("step"), torch.Tensor):
                    state["step"] = state["step"].to(parameter.device, torch.float32)

    return turn


def _constructed(optimizer: Optimizer, model: nn.Module, way: str) -> str:
    """The call that builds it, with what differs from its defaults."""
    kind, groups = type(optimizer), "groups"
    if len(optimizer.param_groups) == 1:
        own = {id(one) for one in optimizer.param_groups[0]["params"]}
        if own == {id(one) for one in model.parameters()}:
            groups = "model.parameters()"
        elif own == {id(one) for one in model.parameters() if one.requires_grad}:
            groups = "[p for p in model.parameters() if p.requires_grad]"
        else:
            groups = "parameters"
    usual = {name: one.default for name, one in inspect.signature(kind.__init__).parameters.items()}
    first = optimizer.param_groups[0]
    said = [
        f"{name}={first[name]!r}"
        for name in usual
        if name in first and name not in ("params", "fused", "foreach") and first[name] != usual[name]
    ]
    home = "torch.optim." if kind.__module__.startswith("torch.optim") else ""
    return f"optimizer = {home}{kind.__name__}({', '.join([groups, *said])}, {way}=True)"


# -- layout, threads, precision --------------------------------------------------------------------------------------


def _layouts(bench: Bench) -> Iterator[Knob | Missing]:
    convolutions = (nn.Conv2d, nn.ConvTranspose2d)
    images = any(one.ndim == 4 and one.is_floating_point() for _, one in tensors_in(bench.batches[0]))
    if not images or not any(isinstance(part, convolutions) for part in bench.model.modules()):
        yield "channels_last", "the model has no convolutions over images"
        return

    def turn(setup: Setup) -> None:
        setup.trained.to(memory_format=torch.channels_last)
        setup.channels_last = True

    lines = {
        "model": ("model = model.to(memory_format=torch.channels_last)",),
        "loop": ("x = x.to(memory_format=torch.channels_last)",),
    }
    yield Knob("channels_last", "layout", turn, lines, draws=True)


def _threads(bench: Bench) -> Iterator[Knob | Missing]:
    present, most = torch.get_num_threads(), allowed_processors()
    wanted = [count for count in dict.fromkeys((most, max(1, most // 2), 1)) if count != present]
    if bench.device.type != "cpu" or not wanted:
        why = "the model is not on the CPU" if bench.device.type != "cpu" else f"there is only {most} processor"
        yield "threads", why
        return
    for count in wanted:
        name = f"{count} thread{'s' * (count != 1)}"
        yield Knob(name, "threads", _set("threads", count), {"settings": (f"torch.set_num_threads({count})",)})


def _precisions(bench: Bench) -> Iterator[Knob | Missing]:
    present = torch.get_float32_matmul_precision()
    wanted = PRECISIONS.keys() - ({"high"} if bench.device.type == "cpu" else set())
    for precision in sorted(wanted):
        name = f"matmul precision {precision}"
        if precision == present:
            yield name, "it is set already"
            continue
        line = f'torch.set_float32_matmul_precision("{precision}")'
        yield Knob(name, "precision", _set("precision", precision), {"settings": (line,)})


def _set(name: str, value: Any) -> Callable[[Setup], None]:
    return lambda setup: setattr(setup, name, value)


# -- modes -----------------------------------------------------------------------------------------------------------


def _modes(bench: Bench) -> Iterator[Knob | Missing]:
    device = bench.device.type
    dtype = narrow_dtype(bench.device)
    short = f"torch.{str(dtype).removeprefix('torch.')}"

    def cast(setup: Setup) -> None:
        setup.autocast = dtype
        setup.scaler = scaler_for(setup.trained, OptimizationMode.AMP)

    def as_mode(mode: OptimizationMode) -> Callable[[Setup], None]:
        def turn(setup: Setup) -> None:
            setup.model = optimized(setup.model, mode)

        return turn

    def everything(setup: Setup) -> None:
        cast(setup)
        as_mode(OptimizationMode.FULL_OPTIMIZATION)(setup)

    scaled = ("scaler = torch.amp.GradScaler()",) if dtype is torch.float16 else ()
    in_loop = [f'with torch.autocast("{device}", dtype={short}):', "    loss = loss_fn(model(x), y)"]
    if scaled:
        in_loop += ["scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"]
    lean = (
        "from seismograd.optimize.models import optimized",
        'model = optimized(model, "memory_efficient")',
    )
    full = (lean[0], 'model = optimized(model, "full_optimization")')
    yield Knob(
        OptimizationMode.AMP.value,
        "amp",
        cast,
        {"model": scaled, "loop": in_loop},
        draws=device != "cpu",
    )
    yield Knob(
        OptimizationMode.COMPILATION.value,
        "compile",
        as_mode(OptimizationMode.COMPILATION),
        {"model": ("model = torch.compile(model)",)},
        draws=True,
        compiles=True,
    )
    yield Knob(
        OptimizationMode.MEMORY_EFFICIENT.value,
        "memory compile",  # both wrap the model: the mode that does both is full_optimization
        as_mode(OptimizationMode.MEMORY_EFFICIENT),
        {"model": lean},
    )
    yield Knob(
        OptimizationMode.FULL_OPTIMIZATION.value,
        "amp memory compile",
        everything,
        {"model": (*full, *scaled), "loop": in_loop},
        draws=True,
        compiles=True,
    )


# -- the loader ------------------------------------------------------------------------------------------------------


def _loaders(bench: Bench) -> Iterator[Knob | Missing]:
    loader = bench.loader
    if loader is None:
        for name in ("num_workers", "pin_memory", "batch size"):
            yield name, "batches is no DataLoader"
        return
    most = allowed_processors()
    for count in [one for one in dict.fromkeys((most, max(1, most // 2), 0)) if one != loader.num_workers][:2]:
        options: dict[str, Any] = {"num_workers": count, "persistent_workers": count > 0}
        more = ", persistent_workers=True" if count else ""
        line = f"loader = DataLoader(..., num_workers={count}{more})"
        yield Knob(f"num_workers={count}", "workers", _loader_with(options), {"loader": (line,)}, loads=True)
    if bench.device.type != "cuda":
        yield "pin_memory", "the model is on the CPU: there is nowhere to copy to"
    elif loader.pin_memory:
        yield "pin_memory", "it is on already"
    else:
        line = "loader = DataLoader(..., pin_memory=True)"
        yield Knob("pin_memory", "pinning", _loader_with({"pin_memory": True}), {"loader": (line,)}, loads=True)
    size = loader.batch_size
    if size is None:
        yield "batch size", "the loader's batches are made by a sampler of its own"
        return
    try:
        is_stream = isinstance(loader.dataset, torch.utils.data.IterableDataset)
        samples = len(loader.dataset if is_stream else loader.sampler)  # type: ignore[arg-type]
    except TypeError:
        samples = 2 * size
    if samples < 2 * size:
        yield "batch size", f"an epoch has only {samples} samples"
        return
    line = f"loader = DataLoader(..., batch_size={2 * size})"
    yield Knob(f"batch size {2 * size}", "batch", _doubled_batches(size), {"loader": (line,)}, loads=True, merged=2)


def _loader_with(options: dict[str, Any]) -> Callable[[Setup], None]:
    def turn(setup: Setup) -> None:
        assert setup.loader is not None
        setup.loader = rebuilt(setup.loader, **options)

    return turn


def _doubled_batches(size: int) -> Callable[[Setup], None]:
    return _loader_with({"batch_size": 2 * size})
