"""Sees every op of a second run, forward and backward, and knows where each value that is not finite was made."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

import torch
import torch.fx.traceback
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from seismograd.onlookers.graph import node_op, saved_by
from seismograd.places import Spot, nearest
from seismograd.records import Operand, Origin, Where
from seismograd.replay.numbers import bad_places, holds_nan, is_bad, only_minus_infinity, operand, plain

_MEMORY = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted", "resize_")
"""Ops whose output nobody has written yet."""

_ABSORBS_MASKS = ("_softmax", "_log_softmax", "_safe_softmax", "logsumexp", "_scaled_dot_product")
"""Ops for whose sake people put -Inf into a tensor."""


USERS = "the user's own"


class CollectiveError(RuntimeError):
    """The second run would have to talk to other ranks."""


@dataclass(slots=True)
class Place:
    """Where in the program something runs: the user's line, the module, and how often it came by there."""

    spot: Spot | None
    library: Spot | None
    module: str | None
    nth: int = 1
    """How many times this line has been reached in this module call, this time included."""
    calls: int = 1
    """How many times this module has been called."""
    op: str | None = None
    """The op that ran there, of the forward pass; `USERS` for code of the user's own that runs in backward."""

    def __iter__(self) -> Iterator[str]:
        """For torch, should it print a traceback: it has no lines."""
        return iter(())


@dataclass(slots=True)
class Bad:
    """An op whose output is not finite."""

    number: int
    op: str
    place: Place
    backward: bool
    parents: list[int]
    """Earlier bad ops whose values went into it."""
    outside: list[tuple[str, Tensor]]
    """What went in bad and was made by no op of this run, by its name: an argument, a parameter, a constant."""
    meant: bool
    """An infinity that somebody wrote down: the -Inf of a mask."""
    birth: Origin | None = None
    """Told if this op made it out of finite inputs."""


@dataclass(slots=True)
class Known:
    """A tensor from outside the run, by its storage."""

    name: str
    kind: str
    """`argument`, `parameter`, `buffer`, `variable` of the loop's own, or `constant`."""
    tensor: Tensor = field(repr=False)


def op_name(function: Any) -> str:
    """`aten.sqrt` for `aten.sqrt.default`."""
    return str(function._schema.name).replace("::", ".")


def schema_name(function: Any) -> str:
    return str(function._schema.name).partition("::")[2]


def storage_of(tensor: Tensor) -> int:
    """What all views of one tensor share; 0 where there is no such thing."""
    try:
        if tensor.layout == torch.sparse_coo:
            tensor = tensor._values()
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return 0


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every op whose output is not finite. What ops write to that was there before is kept, to be put back."""

    def __init__(
        self, names: Mapping[int, str], known: dict[int, Known], *, base: CodeType | None = None, live: bool = False
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bad: list[Bad] = []
        self.kept: dict[int, tuple[Tensor, Tensor, Tensor, int]] = {}
        """By storage: what was written to, a copy of it as it was, the tensor that was written, and its version."""
        self._names, self._known, self._base = names, known, base
        self._live = live  # it is the user's own run: nothing may be changed in it
        self._writer: dict[int, int] = {}  # by storage: the bad op that wrote it last
        self._born: set[int] = set()
        self._before: dict[int, Tensor] = {}  # what the present op writes to, as it was
        self._modules: list[str | None] = []
        self._called: Counter[str] = Counter()
        self._reached: Counter[tuple[str | None, int, int, str]] = Counter()
        self._node: Any = None  # of autograd's, that runs at present
        self._node_born: set[int] = set()  # what it has made so far
        self._newest: Place | None = None
        self.ops = 0
        self.default: Spot | None = None
        """The user's line that called the module, for code that is not the user's own."""
        self.looks = True
        """Whether values are looked at; else it only keeps what is written to."""
        self.expects: list[tuple[nn.Module, Callable[[], None]]] = []
        """Modules that will be called, and what is to be done just before."""

    def knows(self, storage: int, known: Known) -> None:
        self._known.setdefault(storage, known)

    # -- places --------------------------------------------------------------------------------------------------

    def module_starts(self, module: nn.Module) -> None:
        for at, (expected, prepare) in enumerate(self.expects):
            if expected is module:
                del self.expects[at]
                prepare()
                break
        name = self._names.get(id(module))
        if name is None:
            name = self._modules[-1] if self._modules else None
        else:
            self._called[name] += 1
        self._modules.append(name)

    def module_ended(self, output: Any = None) -> None:
        self._modules.pop()

    def note_node(self) -> Place:
        """Called when autograd makes a node: what stands at `traceback_` in its metadata."""
        self._newest = self._place(sys._getframe(1))
        return self._newest

    def _place(self, frame: Any) -> Place:
        spot, library = nearest(frame, until=self._base)
        module = self._modules[-1] if self._modules else None
        if spot is None:
            spot = self.default
        return Place(spot, library, module, calls=self._called[module] if module is not None else 1)

    def _present_place(self, node: Any) -> tuple[Place, bool]:
        """Where the present op runs, and whether that is backward."""
        if node is None:
            newest = self._newest
            place = self._place(sys._getframe(2))
            if newest is not None and newest.spot == place.spot and newest.module == place.module:
                return newest, False
            return place, False
        spot, library = nearest(sys._getframe(2), until=self._base)
        told = node.metadata.get("traceback_")
        if isinstance(told, Place):
            if spot is not None:  # a function or hook of the user's own, in backward
                return replace(told, spot=spot, library=library, op=USERS), True
            return told, True
        return Place(spot or self.default, library, None, op=USERS if spot is not None else None), True

    # -- ops -----------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        if func.namespace in ("c10d", "_c10d_functional") and not self._live:
            raise CollectiveError(f"{op_name(func)} would start a collective")
        self.ops += 1
        self._before.clear()
        if schema.is_mutable and not self._live:
            self._keep_what_is_written(schema, args, kwargs)
        result = func(*args, **kwargs)
        if not self.looks:
            self._born.update(storage_of(output) for output in _tensors(result))
            return result
        newest = self._newest
        node = torch._C._current_autograd_node()
        if newest is not None and newest.op is None and node is None:
            newest.op = op_name(func)
            if newest.spot is not None:
                key = (newest.module, id(newest.spot.code), newest.spot.instruction, newest.op)
                self._reached[key] += 1
                newest.nth = self._reached[key]
        if node is not self._node:
            self._node, self._node_born = node, set()
        given: list[tuple[str, Tensor]] | None = None
        for output in _tensors(result):
            key = storage_of(output)
            if not schema.is_mutable:
                if given is None:
                    given = _given(schema, args, kwargs)
                if any(output is one or (key and key == storage_of(one)) for _, one in given):
                    continue  # a view: nothing was computed
                self._born.add(key)
                self._node_born.add(key)
            if not (output.is_floating_point() or output.is_complex()):
                continue
            name = schema.name.partition("::")[2]
            if (
                name in _MEMORY
                and not self._live
                and output.numel()
                and output.layout == torch.strided
                and not output.is_meta
            ):
                with torch.no_grad():
                    output.fill_(math.nan)  # what lies there is chance: let it be told if it is read
            if not is_bad(output):
                if key in self._writer and _covers(output):
                    del self._writer[key]
                continue
            self._note_bad(func, _given(schema, args, kwargs), _scalars(schema, args, kwargs), output, node)
        return result

    def _keep_what_is_written(self, schema: Any, args: Any, kwargs: Any) -> None:
        for at, argument in enumerate(schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[at] if at < len(args) else kwargs.get(argument.name)
            for tensor in _tensors(value):
                key = storage_of(tensor)
                if tensor.is_floating_point() or tensor.is_complex():
                    self._before[key] = tensor.detach().clone()
                if not key or key in self._born or key in self.kept or tensor.layout != torch.strided:
                    continue
                storage = tensor.untyped_storage()
                whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
                self.kept[key] = (whole, whole.clone(), tensor, -1 if tensor.is_inference() else tensor._version)

    def _note_bad(self, func: Any, given: Any, scalars: Any, output: Tensor, node: Any) -> None:
        place, backward = self._present_place(node)
        key = storage_of(output)
        given = [(name, self._before.get(key, one) if one is output else one) for name, one in given]
        parents: list[int] = []
        outside: list[tuple[str, Tensor]] = []
        for name, one in given:
            if not (one.is_floating_point() or one.is_complex()):
                continue
            at = storage_of(one)
            if one is self._before.get(key):
                at = key
            if at in self._writer:
                if self._writer[at] not in parents and is_bad(one):
                    parents.append(self._writer[at])
            elif at not in self._born and is_bad(one):
                outside.append((name, one))
        written = any(isinstance(value, float) and not math.isfinite(value) for value in scalars.values())
        all_meant = all(self.bad[at].meant for at in parents) and all(self._is_mask(one) for _, one in outside)
        nan = holds_nan(output)
        meant = all_meant and not nan and (written or bool(parents) or bool(outside))
        swallows = schema_name(func) == "logsumexp"  # -Inf out of -Inf only where nothing else was there
        meant = meant and not (swallows and (parents or outside))
        number = len(self.bad)
        bad = Bad(number, op_name(func), place, backward, parents, outside, meant)
        is_memory = schema_name(func) in _MEMORY
        if not (parents or outside) or (all_meant and not meant) or is_memory:
            bad.birth = self._told(bad, given, scalars, output, node)
        self.bad.append(bad)
        self._writer[key] = number

    def _is_mask(self, tensor: Tensor) -> bool:
        known = self._known.get(storage_of(tensor))
        return (known is None or known.kind not in ("parameter", "variable")) and only_minus_infinity(tensor)

    def _told(
        self, bad: Bad, given: list[tuple[str, Tensor]], scalars: dict[str, Any], output: Tensor, node: Any
    ) -> Origin:
        place = bad.place
        value, count, index = bad_places(output)
        inputs = [operand(name, one, self._parameter(one)) for name, one in given[:4]]
        facts: dict[str, Any] = {}
        forward_op = None
        if bad.backward and node is not None:
            if _is_users_function(node):
                facts["function"] = node.name().removesuffix("Backward")
            elif place.op == USERS:
                facts["function"] = "a hook"
            else:
                forward_op = place.op or node_op(node)
                inputs = self._of_forward(node, given) or inputs
            own = {storage_of(one) for one in saved_by(node).values()} | self._node_born
            zero = _arrived_as_zero([(name, one) for name, one in given if storage_of(one) not in own], output)
            if zero is not None:
                facts["gradient_zero"] = zero
        if place.calls > 1:
            facts["time_step"] = place.calls - 1
        elif place.nth > 1:
            facts["time_step"] = place.nth - 1
        if place.library is not None:
            facts["library"] = f"{place.library.file}:{place.library.line}"
        return origin_at(
            place,
            phase="backward" if bad.backward else "forward",
            op=bad.op,
            forward_op=forward_op,
            value=value,
            bad=count,
            size=output.numel(),
            index=index,
            shape=tuple(output.shape),
            dtype=str(output.dtype).removeprefix("torch."),
            inputs=tuple(inputs),
            arguments={name: one for name, one in scalars.items() if one is not None},
            facts=facts,
        )

    def _of_forward(self, node: Any, given: list[tuple[str, Tensor]]) -> list[Operand]:
        """What went into the forward op, as far as autograd kept it, and the gradient that arrived."""
        saved = saved_by(node)
        told = [operand(name, one, self._parameter(one)) for name, one in saved.items()]
        keys = {storage_of(one) for one in saved.values()}
        keys |= self._node_born
        gradients = [one for _, one in given if storage_of(one) not in keys and one.is_floating_point()]
        return told + [operand("grad", one) for one in gradients[:1]] if told else []

    def _parameter(self, tensor: Tensor) -> str | None:
        known = self._known.get(storage_of(tensor))
        return known.name if known is not None and known.kind != "argument" else None

    # -- walking back --------------------------------------------------------------------------------------------

    def source_of(self, tensors: list[Tensor], *, meant: bool = False) -> tuple[Bad | None, Known | None]:
        """The op that first made what is bad in these, or the tensor from outside that brought it in.

        `meant`: infinities that somebody wrote down count, too.
        """
        waiting = [self._writer[key] for one in tensors if (key := storage_of(one)) in self._writer and is_bad(one)]
        seen: set[int] = set()
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen.add(number)
                waiting += self.bad[number].parents
        known: Known | None = None
        for number in sorted(seen):
            bad = self.bad[number]
            if bad.birth is not None and (meant or not bad.meant) and not self._masked_argument(bad):
                return bad, None
            if bad.outside and (meant or not bad.meant):
                known = self._known.get(storage_of(bad.outside[0][1]))
                if known is None:
                    known = Known(bad.outside[0][0], "constant", bad.outside[0][1])
                return bad, known
        return None, known

    def _masked_argument(self, bad: Bad) -> bool:
        """-Inf in an argument that no softmax takes up: not a mask but bad data."""
        if not bad.outside or bad.op.partition(".")[2].startswith(_ABSORBS_MASKS):
            return False
        known = self._known.get(storage_of(bad.outside[0][1]))
        return known is not None and known.kind == "argument"


def origin_at(place: Place, *, phase: str, op: str | None, **told: Any) -> Origin:
    spot = place.spot
    if spot is None:
        return Origin(phase, Where(module=place.module, op=op, phase=phase), **told)
    where = Where(module=place.module, op=op, phase=phase, file=spot.file, line=spot.line, code=spot.source)
    return Origin(phase, where, columns=spot.columns, **told)


def _is_users_function(node: Any) -> bool:
    return hasattr(node, "_forward_cls") or isinstance(node, torch.autograd.function.BackwardCFunction)


def _arrived_as_zero(given: list[tuple[str, Tensor]], output: Tensor) -> bool | None:
    """Whether the gradient that arrived at the bad elements was exactly 0, so that forward had discarded them."""
    for _, one in given:
        if one.shape == output.shape and one.is_floating_point() and one.layout == torch.strided == output.layout:
            at = ~torch.isfinite(output)
            return bool((one.detach()[at] == 0).all())
    return None


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in _tensors(item)]
    return []


def _given(schema: Any, args: Any, kwargs: Any) -> list[tuple[str, Tensor]]:
    """The tensors that go into an op, by their names."""
    found: list[tuple[str, Tensor]] = []
    for at, argument in enumerate(schema.arguments):
        value = args[at] if at < len(args) else kwargs.get(argument.name)
        many = _tensors(value)
        names = [argument.name] if len(many) == 1 else [f"{argument.name}[{n}]" for n in range(len(many))]
        found += zip(names, many, strict=True)
    return found


def _scalars(schema: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """What else goes into an op."""
    found: dict[str, Any] = {}
    for at, argument in enumerate(schema.arguments):
        value = args[at] if at < len(args) else kwargs.get(argument.name)
        if isinstance(value, (int, float, bool, str)) or (
            isinstance(value, (list, tuple)) and value and all(isinstance(item, (int, float)) for item in value)
        ):
            found[argument.name] = list(value) if isinstance(value, tuple) else value
    return found


def _covers(tensor: Tensor) -> bool:
    """Whether it is all there is in its storage."""
    numbers = plain(tensor)
    if numbers is None or tensor.layout != torch.strided:
        return True
    return tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
