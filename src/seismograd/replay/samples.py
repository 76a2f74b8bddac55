"""Whether samples are kept apart, and the future from the past: a call is made again with one of them changed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from seismograd.onlookers.graph import Graph, Node
from seismograd.replay.numbers import plain, tensors_in
from seismograd.replay.recorder import Call
from seismograd.replay.second_runs import SecondRuns, unwrapped

_MOST_BYTES = 256 * 2**20
"""So much of a model's activations is kept to see which module mixes."""

_MEANT = (
    "torch.ao.",
    "Quant",
    "Expert",
    "MoE",
    "Router",
    "Graph",
    "GCN",
    "GAT",
    "GNN",
    "MessagePassing",
    "torch_geometric",
)
"""Parts of the names of modules in which samples, or nodes, meet on purpose."""

_PAIRS = ("Sub", "Mm", "Cdist", "EuclideanDist")

_IGNORED = -100
"""What a loss leaves out, by torch's default."""


@dataclass(frozen=True)
class Loaded:
    """A tensor of a batch whose first axis counts samples for sure, as torch's own collation makes it."""

    length: int
    address: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, batch: Any) -> list[Loaded]:
        tensors = [tensor for _, tensor in tensors_in(batch) if _is_plain(tensor) and tensor.ndim]
        return [cls(int(one.shape[0]), one.data_ptr(), one.stride()) for one in tensors]


@dataclass
class Material:
    """What is known about a call's data."""

    call: Call
    loaded: Sequence[Loaded] = ()
    targets: Sequence[Tensor] = ()
    """What torch's losses compared with."""
    graph: Graph | None = None
    usual: int = 0
    """The length of the first axis in the step before."""
    inputs: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        found = [tensor for _, tensor in tensors_in((self.call.args, self.call.kwargs))]
        self.inputs = list({id(tensor): tensor for tensor in found if _is_plain(tensor)}.values())

    @property
    def length(self) -> int:
        """Of the first axis of the first input."""
        return int(self.inputs[0].shape[0]) if self.inputs and self.inputs[0].ndim else 0


def _is_plain(tensor: Tensor) -> bool:
    """Whether it is an ordinary one, with a place in memory."""
    return type(tensor) in (Tensor, nn.Parameter) and tensor.layout == torch.strided and not tensor.is_meta


# -- which axis is the batch -------------------------------------------------------------------------------------


def batch_size(material: Material) -> int:
    """How many samples the first axis of the inputs counts; 0 where that is not certain."""
    size = material.length
    if size < 2 or means_to_mix(material, size):
        return 0
    first = material.inputs[0]
    if material.loaded:
        known = {one.length for one in material.loaded} == {size}
        return size if known and _is_per_sample(first, size, material.loaded) else 0
    if size != material.usual or size in first.shape[1:] or _is_graph(material, size):
        return 0
    whole = not first.is_floating_point()  # the words of a sentence
    if first.ndim < (2 if whole else 3) and not _softmax_over(material, size):
        return 0
    if first.ndim > 1 and first.shape[1] < 2:
        return 0
    return size if any(_one_each(target, first, size) for target in material.targets) else 0


def _is_per_sample(tensor: Tensor, size: int, loaded: Sequence[Loaded]) -> bool:
    if tensor.ndim == 0 or tensor.shape[0] != size or tensor.layout != torch.strided:
        return False
    same = any(tensor.data_ptr() == one.address and tensor.stride() == one.strides for one in loaded)
    return same or size not in tensor.shape[1:]


def _one_each(target: Tensor, first: Tensor, size: int) -> bool:
    """Whether there is one target for each entry of the first axis, and not one for each of the first two."""
    if target.ndim not in (1, 2) or target.shape[0] != size:
        return False
    return target.ndim == 1 or first.ndim < 3 or target.shape[1] != first.shape[1]


def means_to_mix(material: Material, size: int) -> bool:
    """Whether statistics over the batch, a mixture of experts or a graph have samples meet on purpose."""
    for module in unwrapped(material.call.module).modules():
        kind = type(module)
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            return True
        home = kind.__module__
        if not home.startswith("torch.nn.") and any(word in f"{home}.{kind.__name__}" for word in _MEANT):
            return True
    graph = material.graph
    return graph is not None and any(
        node.span is not None and _is_statistic(graph, node, size) for node in graph.nodes if node.leaf is None
    )


def _is_statistic(graph: Graph, node: Node, size: int) -> bool:
    """Whether it is the mean, variance or deviation over an axis of samples; a choice among them, or all pairs."""
    if node.name in ("Topk", "Sort"):
        return True
    if node.name in _PAIRS:  # each sample with each: a discriminator that compares them
        shape = node.shape
        return len(shape) > 1 and shape[0] == size and size in shape[1:]
    if node.name not in ("Mean", "Var", "Std", "VarMean", "StdMean"):
        return False
    before = graph.nodes[node.into[0]].shape if node.into and node.into[0] >= 0 else ()
    if not before or before[0] != size:
        return False
    axes = getattr(node.function, "_saved_dim", None)
    return not axes or any(_axis(at, len(before)) == 0 for at in axes)


def _axis(at: int, axes: int) -> int:
    """Autograd keeps a negative axis as an unsigned number."""
    return at if at < 2**63 else at - 2**64 + axes


def _is_graph(material: Material, size: int) -> bool:
    """Whether nodes of a graph may be what the first axis counts: there is a matrix or a list of its edges."""
    held: list[Any] = [material.call.args, material.call.kwargs]
    for module in unwrapped(material.call.module).modules():
        held += [list(module._buffers.values()), [v for v in module.__dict__.values() if isinstance(v, Tensor)]]
    for _, tensor in tensors_in(held):
        if tensor.layout != torch.strided or tuple(tensor.shape[-2:]) == (size, size):
            return True
        if tensor.ndim == 2 and tensor.shape[0] == 2 and not tensor.is_floating_point():
            return True
    return False


def _softmax_over(material: Material, size: int) -> bool:
    """Whether what the model ends with is a softmax over the first axis of a table."""
    for node in material.graph.nodes if material.graph is not None else ():
        if node.name in ("Softmax", "LogSoftmax") and node.span is not None:
            shape = node.shape
            if len(shape) == 2 and shape[0] == size and shape[1] > 1 and _axis(node.function._saved_dim, 2) == 0:
                return True
    return False


# -- samples -----------------------------------------------------------------------------------------------------


def mixing(runs: SecondRuns, material: Material, size: int, axis: int = 0) -> dict[str, Any] | None:
    """Has the second sample stand in the place of the first, too, and looks at what comes out for all others."""
    call = material.call
    per_sample = {
        id(tensor)
        for tensor in material.inputs
        if tensor.ndim > axis
        and tensor.shape[axis] == size
        and (axis == 1 or _is_per_sample(tensor, size, material.loaded or Loaded.of(material.inputs[:1])))
    }

    def changed(tensor: Tensor) -> Tensor:
        return _with_second_first(tensor.detach(), axis) if id(tensor) in per_sample else tensor.detach()

    if all(torch.equal(changed(one), one.detach()) for one in material.inputs):
        return None
    with _plainly():
        before = runs.evaluated(call, torch.Tensor.detach)
        after = dict(runs.evaluated(call, changed))
    worst: dict[str, Any] | None = None
    compared = False
    for path, one in before:
        other = after.get(path)
        if other is None or not _counts(one, size, axis) or one.shape != other.shape:
            continue
        compared = True
        moved = _moved(one, other, axis, call)
        affected = moved[1:] > moved[0] * 1e-4
        if affected.any() and (worst is None or float(moved[1:].max()) > worst["largest"]):
            worst = {"output": path, "affected": int(affected.sum()), "largest": float(moved[1:].max())}
            worst["own"] = float(moved[0])
    if worst is not None:
        worst.update(samples=size, **_culprit(runs, call, changed, size, axis))
        return worst
    return {"samples": size, "affected": 0} if compared else None


def _with_second_first(tensor: Tensor, axis: int) -> Tensor:
    copy = tensor.clone()
    copy.select(axis, 0).copy_(tensor.select(axis, 1))
    return copy


def _counts(tensor: Tensor, size: int, axis: int) -> bool:
    """Whether an axis of this output, and only that, counts samples: a table of all pairs is meant to mix."""
    shape = tuple(tensor.shape)
    return tensor.is_floating_point() and len(shape) > axis and shape[axis] == size and shape.count(size) == 1


def _moved(one: Tensor, other: Tensor, axis: int, call: Call) -> Tensor:
    """How far each entry of an axis has moved; what rounding may do is nothing."""
    first, second = plain(one), plain(other)
    assert first is not None
    assert second is not None
    distance = (first.double() - second.double()).abs().nan_to_num(0.0, 0.0, 0.0)
    narrow = [dtype for _, enabled, dtype in call.autocast.kinds if enabled] + [one.dtype]
    eps = max(torch.finfo(dtype).eps for dtype in narrow)
    finite = first.double().abs().nan_to_num(0.0, 0.0, 0.0)
    floor = (64 if eps < 1e-4 else 8) * eps * float(finite.max()) if finite.numel() else 0.0
    moved = distance.movedim(axis, 0).reshape(distance.shape[axis], -1).amax(1)
    return torch.where(moved > floor, moved, 0.0)


@contextmanager
def _plainly() -> Iterator[None]:
    """Without the fast path of attention, whose result depends on how long the longest sample is."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _culprit(runs: SecondRuns, call: Call, changed: Any, size: int, axis: int) -> dict[str, Any]:
    """The first module that gets separate samples and gives mixed ones; else the one in whose own code it happens."""
    names = runs.names_with(unwrapped(call.module))
    notes: list[list[tuple[str, Any, Tensor | None, Tensor | None]]] = []
    for change in (torch.Tensor.detach, changed):
        seen: list[tuple[str, Any, Tensor | None, Tensor | None]] = []
        with _plainly():
            runs.evaluated(call, change, around=_noting(seen, names, size))
        notes.append(seen)
    before, after = notes
    if len(before) != len(after):
        return {}
    for (name, kind, given, made), (other, _, given_now, made_now) in zip(before, after, strict=True):
        if name != other or made is None or made_now is None or made.shape != made_now.shape:
            continue
        if not _mixed(made, made_now, axis, call):
            continue
        if given is None or given_now is None or given.shape != given_now.shape:
            return {"module": name, "kind": kind}
        if _mixed(given, given_now, axis, call):
            parent = name.rpartition(".")[0]
            return {"module": parent, "before": name} if name else {"module": name, "kind": kind}
        return {"module": name, "kind": kind}
    return {}


def _mixed(one: Tensor, other: Tensor, axis: int, call: Call) -> bool:
    moved = _moved(one, other, axis, call)
    return bool((moved[1:] > moved[0] * 1e-4).any())


@contextmanager
def _noting(seen: list[tuple[str, Any, Tensor | None, Tensor | None]], names: Any, size: int) -> Iterator[None]:
    """Every call of a module on this thread, with what went in and what came out, as far as it can be afforded."""
    thread, room = get_ident(), _MOST_BYTES

    def first(value: Any) -> Tensor | None:
        nonlocal room
        for _, tensor in tensors_in(value):
            if tensor.ndim and tensor.is_floating_point() and size in tensor.shape[:2]:
                room -= tensor.numel() * tensor.element_size()
                return tensor.detach().clone() if room > 0 else None
        return None

    def note(module: nn.Module, args: Any, output: Any) -> None:
        if get_ident() == thread and room > 0 and id(module) in names:
            made = first(output)
            if made is not None and made.shape[0] == size:
                seen.append((names[id(module)], type(module).__name__, first(args), made))

    handle = register_module_forward_hook(note)
    try:
        yield
    finally:
        handle.remove()


# -- time --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shifted:
    """An input of which a target is the next value: the model is to predict it."""

    tensor: Tensor
    axis: int
    """The one that counts time."""


def next_values(material: Material) -> Shifted | None:
    """The one input that the target runs ahead of by one, along its first or second axis."""
    found: list[Shifted] = []
    for tensor in material.inputs:
        for axis in (1, 0):
            fits = axis < tensor.ndim <= 3 and tensor.shape[axis] >= 4 and tensor.numel() <= 10**7
            if fits and any(_is_next(tensor, target, axis) for target in material.targets):
                found.append(Shifted(tensor, axis))
                break
    return found[0] if len(found) == 1 else None


def _is_next(tensor: Tensor, target: Tensor, axis: int) -> bool:
    """Whether the target holds what comes next in the input. It may have been flattened."""
    if tensor.is_floating_point() != target.is_floating_point() or tensor.device != target.device:
        return False
    length, numel = tensor.shape[axis], tensor.numel()
    later = tensor.detach().narrow(axis, 1, length - 1)
    if target.numel() == numel:
        wanted = target.detach().reshape(tensor.shape).narrow(axis, 0, length - 1)
    elif target.numel() == later.numel():
        wanted = target.detach().reshape(later.shape)
    else:
        return False
    counts = wanted != _IGNORED
    if int(counts.sum()) < 8 or not torch.equal(wanted[counts], later[counts]):
        return False
    now = tensor.detach().narrow(axis, 0, length - 1)
    return bool((now[counts] != later[counts]).double().mean() > 0.2)  # not a constant, which is its own next value


def given_target(material: Material) -> Shifted | None:
    """An input of words that is the target itself, beside another sequence of words: what a decoder is fed.

    One alone would be an autoencoder's, and is what it should be.
    """
    words = [one for one in material.inputs if one.ndim == 2 and one.dtype in (torch.int64, torch.int32)]
    same = [one for one in words if any(_is_the_same(one, target) for target in material.targets)]
    others = [
        one
        for one in words
        if not any(one is known for known in same) and int(one.max()) > 1 and not torch.equal(one[:-1], one[1:])
    ]
    return Shifted(same[0], 1) if len(same) == 1 and others and same[0].shape[1] >= 4 else None


def _is_the_same(tensor: Tensor, target: Tensor) -> bool:
    if target.numel() != tensor.numel() or target.is_floating_point() or target.device != tensor.device:
        return False
    return torch.equal(tensor.detach(), target.detach().reshape(tensor.shape).to(tensor.dtype))


def looks_ahead(runs: SecondRuns, material: Material, shifted: Shifted) -> dict[str, Any] | None:
    """Changes the last position, and looks at what comes out there (`own`) and for all before it (`ahead`)."""
    tensor, axis = shifted.tensor.detach(), shifted.axis
    length = int(tensor.shape[axis])
    other = int(tensor.shape[1 - axis]) if tensor.ndim > 1 else 1
    if other == length or _has_statistics_of_time(material):
        return None
    last, changed_last = tensor.select(axis, length - 1), tensor.select(axis, 0)
    if torch.equal(last, changed_last):
        changed_last = tensor.select(axis, length // 2)
    if torch.equal(last, changed_last):
        return None
    copy = tensor.clone()
    copy.select(axis, length - 1).copy_(changed_last)

    def changed(one: Tensor) -> Tensor:
        return copy if one is shifted.tensor else one.detach()

    with _plainly():
        before = runs.evaluated(material.call, torch.Tensor.detach)
        after = dict(runs.evaluated(material.call, changed))
    told: dict[str, Any] | None = None
    for path, one in before:
        then = after.get(path)
        if then is None or one.shape != then.shape or not one.is_floating_point():
            continue
        at = _time_of(tuple(one.shape), length, other, axis)
        if at is None:
            continue
        shape, place = at
        moved = _moved(one.reshape(shape), then.reshape(shape), place, material.call)
        early = moved[: length - 1]
        seen = int((early > 1e-6 * moved[-1]).sum())
        if told is None or seen > told["ahead"]:
            told = {"positions": length, "ahead": seen, "output": path, "own": bool(moved[-1] > 0)}
            told["largest"] = float(early.max())
    return told


def _time_of(shape: tuple[int, ...], length: int, other: int, axis: int) -> tuple[tuple[int, ...], int] | None:
    """An output's shape with an axis of time, and which it is."""
    lead = (other, length) if axis == 1 else (length, other)
    if shape[:2] == lead and (len(shape) > 2 or math.prod(lead) > 0):
        return shape, axis
    if other == 1 and shape[0] == length:
        return shape, 0
    if len(shape) > 1 and shape[0] == math.prod(lead):
        return (*lead, *shape[1:]), axis
    if len(shape) > 2 and shape[0] == other and shape[-1] == length:
        return shape, len(shape) - 1
    return None


def _has_statistics_of_time(material: Material) -> bool:
    """Norms over the whole sequence carry a little of the future: that is not what is looked for."""
    kinds = (nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)
    return any(isinstance(module, kinds) for module in unwrapped(material.call.module).modules())
