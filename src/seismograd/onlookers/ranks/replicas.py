"""Tells the other ranks, step by step, how this one is: sums of what has to be alike, and what was done here."""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, process_time
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd.onlookers.data.batches import fingerprint
from seismograd.onlookers.graph import Graph
from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.onlookers.ranks.drawing import Drawing
from seismograd.onlookers.ranks.feeding import Feeding
from seismograd.onlookers.ranks.wrapping import Wrapping
from seismograd.probes.pack import Pack, Values
from seismograd.probes.timing import PHASES
from seismograd.probes.watched import Watched
from seismograd.stats.tensors import bit_sums, norms

EARLY = 16
"""So many steps at the beginning are compared one by one."""
DATA = 64
"""At so many steps it is looked at what is fed, and with which random numbers."""
SMALL = 1 << 18
"""Elements of replicas whose sums are made twice as often: that is some 30 microseconds' work."""
SETTLED = 64
"""After so many steps it is seen anew how large they are."""
KEPT = 4 << 20
"""Bytes of sums that are kept, for the others to ask for."""
NAMED = 8
"""So many names are told of what was done to parameters."""

_TIMES = frozenset({"step", *PHASES} - {"watch"})

_UNUSED = "Expected to have finished reduction in the prior iteration"


class Replicas(Onlooker):
    """Sums up the parameters and buffers that have to be alike on several ranks, and hands each step's over.

    `every` says at which steps (the same on all ranks, whatever they can afford); `tell` takes what is known of a step.
    """

    topic: ClassVar[str] = "ddp"

    def __init__(
        self,
        watched: Watched,
        *,
        tell: Callable[[int, dict[str, Any]], None],
        every: Callable[[], int],
        account: Callable[[float], None],
    ) -> None:
        super().__init__(watched)
        self._tell_others, self._every, self._account = tell, every, account
        self.wrapping = Wrapping(watched)
        self.asked: int | None = None
        """The step of which somebody wants to know more; set from another thread."""
        self._feeding, self._drawing = Feeding(), Drawing()
        self._steps = 0
        self._small = False
        self._timed: Mapping[str, float] | None = None
        self._inside = self._unsynced = self._stepped = self._abandoned = False
        self._batch: int | None = None
        self._random: int | None = None
        self._drops = False
        self._clipped: float | None = None
        self._applied: tuple[list[Tensor], list[Tensor]] = ([], [])
        """Sums of the gradients that optimizers begin to step with, and of their parameters."""
        self._busy, self._began = 0.0, 0.0
        self._searched = 0  # steps at which DDP's search for unused parameters was seen
        self._unused: dict[str, None] = {}
        self._versions: list[int] | None = None
        self._sums: OrderedDict[int, tuple[list[float], list[float]]] = OrderedDict()
        self._in_pack: tuple[int, int, int] | None = None
        self._state: dict[str, Any] | None = None

    # -- events --------------------------------------------------------------------------------------------------

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        if not ours or not trains:
            return
        self.wrapping.met(module)
        self._inside = self._inside or self.wrapping.is_inside(module)
        self._feeding.trained()
        if self._steps < DATA and self._batch is None:
            given = list(tensors_in((args, kwargs)))[:2]
            self._batch = fingerprint(given)
            if self._steps < EARLY:
                self._drops = any(
                    isinstance(part, nn.modules.dropout._DropoutNd) and part.training and part.p
                    for part in module.modules()
                )
            if all(p.device.type == "cpu" for p in self.watched.roster.parameters[:1]):
                generator = torch.get_rng_state().numpy()
                drawn = self._drawing.goes_on(generator, len(given[0]) if given and given[0].ndim else 1)
                if self._drops or drawn:
                    self._random = _hash(generator.tobytes())

    def data_came(self, batch: Any, loader: Any) -> None:
        self._feeding.data_came(loader)
        self._drawing.data_came(loader)

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        if not self._steps:
            began = perf_counter()
            self.wrapping.search()
            self._account(perf_counter() - began)
        self.wrapping.refresh()
        ddp = self.wrapping.ddp
        self._unsynced = ddp is not None and not ddp.require_backward_grad_sync
        if graph is not None and ddp is not None and ddp.find_unused_parameters:
            self._count_unused(graph)
        self._began = process_time()

    def _count_unused(self, graph: Graph) -> None:
        """DDP looks for parameters without a part in the loss, at every step: whether there ever are any."""
        self._searched += 1
        used = {id(node.leaf) for node in graph.nodes if node.leaf is not None}
        if len(self._unused) < NAMED:
            roster = self.watched.roster
            for name, parameter in zip(roster.names, roster.parameters, strict=True):
                if parameter.requires_grad and id(parameter) not in used:
                    self._unused.setdefault(name)

    def backward_ended(self, owners: Sequence[int]) -> None:
        self._busy += process_time() - self._began

    def clipped(self, parameters: Sequence[Tensor], limit: float, kind: str) -> None:
        self._clipped = limit

    def timed(self, phases: Mapping[str, float]) -> None:
        self._timed = phases

    def step_starts(self, optimizer: Optimizer) -> None:
        """Whoever averages gradients by hand has done it by now: of parameters that began apart nothing else tells."""
        if self._steps >= EARLY or self.wrapping.kind != "replicas":
            return
        graded = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if graded:
            gradients, parameters = self._applied
            gradients += bit_sums([p.grad for p in graded])
            parameters += bit_sums(graded)

    def step_ended(self, optimizer: Optimizer) -> None:
        self._steps += 1
        self._versions = self._present_versions() if self._timed is not None and self._is_due(self._steps - 1) else None

        self._stepped = True

    def abandoned(self) -> None:
        self._abandoned = True

    def restart(self) -> None:
        self._timed, self._versions = None, None
        self._forget()

    def _forget(self) -> None:
        self._inside = self._stepped = self._abandoned = False
        self._batch = self._random = self._clipped = None
        self._applied = ([], [])
        self._busy = 0.0

    # -- the end of a step ---------------------------------------------------------------------------------------

    def _is_due(self, step: int) -> bool:
        every = self._every()
        return step < EARLY or step % (max(1, every // 2) if self._small else every) == 0

    def look(self, pack: Pack, step: int) -> None:
        times, self._timed = self._timed, None
        self._in_pack, self._state = None, None
        if times is None or not dist.is_initialized():
            self._forget()
            return
        self.wrapping.refresh()
        state = self._state = self._told(times)
        if step < EARLY or step % SETTLED == 0:
            replicas = self._replicated()
            self._small = len(replicas) <= 64 and sum(each.numel() for each in replicas) <= SMALL
        if self._is_due(step):
            parameters = self._replicated()
            buffers = list(self.wrapping.buffers.values())
            if parameters or buffers:
                pack.add("ddp/sums", bit_sums([*parameters, *buffers]))
            asked = parameters if self.asked is not None else []
            if asked:
                pack.add("ddp/norms", norms(asked))
            pack.add("ddp/gradients", self._applied[0])
            pack.add("ddp/applied", self._applied[1])
            self._in_pack = (len(parameters), len(buffers), len(asked))
            changed = self._changed()
            if changed:
                state["changed"] = changed
        self._forget()

    def _told(self, times: Mapping[str, float]) -> dict[str, Any]:
        wrapping = self.wrapping
        state: dict[str, Any] = {
            "kind": wrapping.kind,
            "group": wrapping.group,
            "signature": wrapping.signature,
            "times": {phase: round(seconds, 6) for phase, seconds in times.items() if seconds and phase in _TIMES},
            "own": round(_own(times, self._busy), 6),
        }
        if self._inside:
            state["inside"] = True
        if self._unsynced:
            state["unsynced"] = True
        if not self._stepped or self._abandoned:
            state["skipped"] = True
        if self._clipped is not None:
            state["clipped"] = self._clipped
        if self._batch is not None:
            state["batch"] = self._batch
        if self._random is not None:
            state["random"] = self._random
            if self._drops:
                state["drops"] = True
        if self._searched and self._searched % 4 == 0:
            state["unused"] = {"find_unused": True, "at_times": list(self._unused)[:NAMED], "steps": self._searched}
        sequence = _sequence()
        if sequence is not None:
            state["collectives"] = sequence
        if any(getattr(getattr(ddp, "_join_config", None), "enable", False) for ddp in wrapping.ddps):
            state["joins"] = True
        fed = self._feeding.take()
        if fed is not None:
            state["fed"] = fed
        return state

    def _replicated(self) -> list[Tensor]:
        parameters = self.watched.roster.parameters
        return [parameters[place] for place in self.wrapping.replicated]

    def _present_versions(self) -> list[int] | None:
        try:
            return [parameter._version for parameter in self._replicated()]
        except RuntimeError:  # made in inference mode
            return None

    def _changed(self) -> list[str]:
        """Parameters that were written to since the optimizer's step."""
        before, self._versions = self._versions, None
        now = None if before is None else self._present_versions()
        if before is None or now is None or len(before) != len(now) or before == now:
            return []
        names, places = self.watched.roster.names, self.wrapping.replicated
        return [names[place] for place, old, new in zip(places, before, now, strict=True) if old != new][:NAMED]

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        state, self._state = self._state, None
        if state is None:
            return None
        if self._in_pack is not None:
            parameters, buffers, asked = self._in_pack
            sums = values.get("ddp/sums", [])
            mine, others = sums[:parameters], sums[parameters : parameters + buffers]
            if parameters:
                state["parameters"] = _hash_of(mine)
            if buffers:
                state["buffers"] = _hash_of(others)
            if values.get("ddp/applied"):
                state["applied"] = [_hash_of(values["ddp/gradients"]), _hash_of(values["ddp/applied"])]
            self._keep(step, mine, others)
            if asked and self.asked is not None:
                state["detail"], self.asked = self.detail(self.asked, values["ddp/norms"]), None
        self._tell_others(step, state)
        return None

    def _keep(self, step: int, parameters: list[float], buffers: list[float]) -> None:
        self._sums[step] = (parameters, buffers)
        size = 32 * (len(parameters) + len(buffers) + 1)
        while len(self._sums) > max(2, KEPT // size):
            self._sums.popitem(last=False)

    def detail(self, step: int, present: list[float] | None = None) -> dict[str, Any]:
        """What is known of a step that somebody asks for: sums of then, and norms of now where they were taken."""
        parameters, buffers = self._sums.get(step, ([], []))
        wrapping = self.wrapping
        return {
            "step": step,
            "names": wrapping.names,
            "parameters": parameters,
            "norms": present or [],
            "buffer_names": wrapping.buffer_names,
            "buffers": buffers,
            "foreign": wrapping.foreign[:NAMED],
        }

    # -- errors ----------------------------------------------------------------------------------------------------

    def failed(self, error: BaseException) -> Mapping[str, Any] | None:
        """DDP refuses to go on where a parameter has got no gradient; it knows them by number, we by name."""
        ddp, text = self.wrapping.ddp, str(error)
        if ddp is None or _UNUSED not in text:
            return None
        unused, gone = self.wrapping.without_gradient(text)
        return {"unused": unused[:64], "gone": gone, "message": text.partition("\n")[0][:300]}

    def close(self) -> None:
        self.wrapping.release()


def _own(times: Mapping[str, float], busy: float) -> float:
    """Seconds of the step that were neither ours nor spent waiting for other ranks, as far as it can be told: they are
    waited for in collectives, and at the end of backward, where the processor is idle then."""
    away = times.get("collective", 0.0) + times.get("watch", 0.0) + max(0.0, times.get("backward", 0.0) - busy)
    return max(0.0, times.get("step", 0.0) - away)


def _sequence() -> int | None:
    """How many collectives this rank has begun."""
    try:
        return int(dist.group.WORLD._get_sequence_number_for_group())  # type: ignore[union-attr]
    except Exception:  # a backend that does not count
        return None


def _hash_of(sums: list[float]) -> int:
    return _hash(struct.pack(f"{len(sums)}d", *sums))


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=6).digest(), "big")
