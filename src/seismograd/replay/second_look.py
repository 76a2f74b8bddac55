"""Once, at an early step, the model is called again with one sample changed: do the others notice?"""

from __future__ import annotations

import dis
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from types import ModuleType, NoneType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules_of_torch
from torch.utils.data._utils.collate import default_collate

from seismograd.onlookers.graph import Graph
from seismograd.onlookers.onlooker import Onlooker
from seismograd.places import is_users
from seismograd.probes.pack import Values
from seismograd.probes.watched import Watched
from seismograd.replay import samples
from seismograd.replay.recorder import Call, Recorder
from seismograd.replay.samples import Loaded, Material
from seismograd.replay.second_runs import CannotReplayError, SecondRuns

_FIRST, _LAST = 2, 6
"""The backward passes at which it is tried; after that there is no second look."""

_KEEP_TARGETS = ("NllLoss", "NllLoss2D", "MseLoss", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits")
"""Losses that keep what they compared with: a slice of the batch is nobody else's."""

_SLOW = 10.0
"""Seconds: a model that takes longer is not called again."""


class SecondLook(Onlooker):
    """Tells whether samples are kept apart (`mixing`), and the future from the past (`lookahead`), once in a run."""

    topic: ClassVar[str] = "samples"

    def __init__(self, watched: Watched, recorder: Recorder, account: Callable[[float], None]) -> None:
        super().__init__(watched)
        self._recorder, self._account = recorder, account
        self._backwards = 0
        self._began = self._seconds = 0.0
        self._usual = 0
        self._loaded: list[Loaded] = []
        self._targets: list[weakref.ref[Tensor]] = []
        self._told: dict[str, Any] | None = None
        self._over = False

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        self._began = 0.0 if self._over or not ours else perf_counter()

    def module_ended(self, module: nn.Module, output: Any, *, ours: bool, trains: bool) -> None:
        if self._began:
            self._seconds, self._began = perf_counter() - self._began, 0.0

    def data_came(self, batch: Any, loader: Any) -> None:
        if not self._over:
            collated = getattr(loader, "_collate_fn", None) is default_collate
            self._loaded = Loaded.of(batch) if collated else []

    def loss_computed(self, name: str, output: Any, args: Sequence[Any]) -> None:
        if not self._over and len(args) > 1 and isinstance(args[1], Tensor) and len(self._targets) < 8:
            self._targets.append(weakref.ref(args[1]))

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        if self._over:
            return
        self._backwards += 1
        calls = [
            call
            for call in self._recorder.step.calls
            if call.ours and not any(output.reached for output in call.outputs)
        ]
        material = None if len(calls) != 1 or graph is None else self._material(calls[0], graph)
        if material is not None and self._backwards >= _FIRST:
            began = perf_counter()
            try:
                self._recorder.lines.disarm()
                self._told = look(material, self.watched.models, self._seconds)
            finally:
                self._account(perf_counter() - began)
        self._usual = 0 if material is None else material.length
        self._loaded, self._targets = [], []
        self._over = self._told is not None or self._backwards >= _LAST

    def restart(self) -> None:
        self._loaded, self._targets, self._usual = [], [], 0

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        told, self._told = self._told, None
        return told or None

    def close(self) -> None:
        self._over = True
        self.restart()

    def _material(self, call: Call, graph: Graph) -> Material:
        targets = [target for reference in self._targets if (target := reference()) is not None]
        known = {target.data_ptr() for target in targets}
        saved = [node.saved().get("target") for node in graph.nodes if node.name in _KEEP_TARGETS]
        targets += [target for target in saved if target is not None and target.data_ptr() not in known]
        return Material(call, self._loaded, targets, graph, self._usual)


def look(material: Material, models: Mapping[str, nn.Module], seconds: float = 0.0) -> dict[str, Any] | None:
    """The facts that a second look brings; `None` where there is nothing to be had from this step."""
    call = material.call
    if seconds > _SLOW or not material.inputs or may_be_noticed(call.module):
        return {}
    size, shifted = samples.batch_size(material), samples.next_values(material)
    given = samples.given_target(material) if shifted is None else None
    if not size and shifted is None and given is None:
        return None
    runs, facts = SecondRuns(models, (), 1.0), dict[str, Any]()
    try:
        if given is not None:
            facts["given"] = samples.looks_ahead(runs, material, given)
        if shifted is not None:
            facts["lookahead"] = samples.looks_ahead(runs, material, shifted)
            if not size and shifted.tensor.ndim > 1 and shifted.tensor.shape[0] != shifted.tensor.shape[1]:
                across = 1 - shifted.axis  # where time is known, so is the batch
                size = int(shifted.tensor.shape[across])
                size = 0 if size < 2 or samples.means_to_mix(material, size) else size
                facts["mixing"] = samples.mixing(runs, material, size, across) if size else None
        if size and "mixing" not in facts and (shifted is None or shifted.axis == 1):
            facts["mixing"] = samples.mixing(runs, material, size)
    except CannotReplayError:
        return {}
    spot = call.spot
    if spot is not None:
        facts["at"] = {"file": spot.file, "line": spot.line, "code": spot.source}
    return {name: told for name, told in facts.items() if told}


def may_be_noticed(module: nn.Module) -> bool:
    """Whether a second call could leave traces that cannot be put back, or is not the user's to see: hooks, names
    outside of the model that its code sets, compiled code."""
    if modules_of_torch._global_forward_hooks or modules_of_torch._global_forward_pre_hooks:
        return True
    seen: set[type] = set()
    for each in module.modules():
        if any(map(_is_users_hook, (*each._forward_hooks.values(), *each._forward_pre_hooks.values()))):
            return True
        compiled = hasattr(each, "_orig_mod") or getattr(each, "_compiled_call_impl", None) is not None
        if compiled or isinstance(each, torch.jit.ScriptModule) or "forward" in each.__dict__:
            return True
        if type(each) not in seen:
            seen.add(type(each))
            forward: Any = type(each).forward
            code = getattr(forward, "__code__", None)
            if code is not None and is_users(code.co_filename) and (_sets_outside(code) or _reaches_outside(forward)):
                return True
    return False


def _is_users_hook(hook: Any) -> bool:
    code = getattr(hook, "__code__", None)
    if code is None:  # an object with a method for it, as torch's own norms of weights have them
        return not type(hook).__module__.startswith("torch.")
    return is_users(code.co_filename)


def _sets_outside(code: Any) -> bool:
    free = set(code.co_freevars)
    return any(
        one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (one.opname == "STORE_DEREF" and one.argval in free)
        for one in dis.get_instructions(code)
    )


def _reaches_outside(forward: Any) -> bool:
    """Whether it uses a thing outside of the model that a call may change: a list to append to, a log, a counter."""
    names = {one.argval for one in dis.get_instructions(forward.__code__) if one.opname == "LOAD_GLOBAL"}
    held = [forward.__globals__[name] for name in names if name in forward.__globals__]
    for cell in forward.__closure__ or ():
        with suppress(ValueError):  # still empty
            held.append(cell.cell_contents)
    return any(not isinstance(value, _UNCHANGED) and not callable(value) for value in held)


_UNCHANGED = (
    Tensor,
    ModuleType,
    type,
    str,
    bytes,
    int,
    float,
    complex,
    tuple,
    frozenset,
    NoneType,
    torch.dtype,
    torch.device,
)
