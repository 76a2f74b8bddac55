"""What is trained on: the scale of inputs and targets, labels and guesses in their order, and whose random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from seismograd.onlookers.data.relation import Relation
from seismograd.onlookers.data.workers import Workers
from seismograd.onlookers.graph import Graph
from seismograd.onlookers.nested import tensors_in
from seismograd.onlookers.onlooker import Onlooker
from seismograd.probes.pack import Pack, Values
from seismograd.probes.watched import Watched

SAMPLES = 64
"""So many samples of a batch are looked at."""

_EVERY = 256
"""So many steps are looked at, then 16 on end of every 64 where all are heard: order needs neighbours."""

_MOST_CLASSES = 256
_REDUCTION = {
    **dict.fromkeys(("cross_entropy_loss", "nll_loss_nd", "binary_cross_entropy"), 3),
    **dict.fromkeys(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"), 2),
    "binary_cross_entropy_with_logits": 4,
}
"""Which argument says how to reduce; what stands between it and the target are weights."""

_CLASSES = ("cross_entropy_loss", "nll_loss_nd")
_BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")

_FIRST_LAYERS = {
    "Addmm": ("mat1", 1, 2),
    "Mm": ("self", 0, 1),
    "Convolution": ("input", 0, 1),
    "MkldnnRnnLayer": ("input", 0, 1),
    "CudnnRnn": ("input", 0, 1),
}
"""Layers that mix features: the name of the input that they save, its place, and that of the weight."""

_THROUGH = frozenset(
    f"{name}Backward{number}"
    for name in (
        "Mul", "Div", "Neg", "Mean", "Sum", "View", "Squeeze", "Unsqueeze", "ReshapeAlias", "Alias", "Clone", "ToCopy",
    )
    for number in (0, 1, 2, 3)
)  # fmt: skip
_TERMS = frozenset({"AddBackward0", "SubBackward0", "StackBackward0", "CatBackward0"})


@dataclass(slots=True)
class _Loss:
    """One call of a loss function in the forward pass of the step."""

    number: int
    """Of the node that made it, by which backward knows it again: the tensor itself may be gone by then."""
    told: dict[str, Any]
    columns: dict[str, Tensor | list[float]]
    """Short vectors: numbers where they lie on the host, else still on their device."""
    used: bool = False


class Data(Onlooker):
    """Looks at a few samples of what goes into the model and into the losses of torch's that backward is called on."""

    topic: ClassVar[str] = "data"

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._losses: list[_Loss] = []
        self._inputs: list[tuple[dict[str, Any], Tensor]] = []
        self._relation = Relation()
        self._workers = Workers()
        self._rows = 0  # of the batch that went into the model
        self._features: Tensor | None = None
        self._graphs = self._heard = 0
        self._listens, self._last, self._over = True, -1, False
        self._flying: dict[str, Any] = {}

    # -- events --------------------------------------------------------------------------------------------------

    def module_starts(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ours: bool, trains: bool
    ) -> None:
        if not ours or not trains or not self._listens:
            return
        x = _first_tensor([*args, *kwargs.values()])
        if x is None:
            return
        self._rows = x.shape[0]
        self._features = None
        if x.is_floating_point() and self._relation.wants_more:
            self._features = self._relation.features(_some(x, self._heard))

    def loss_computed(self, name: str, output: Any, args: Sequence[Any]) -> None:
        if not self._listens or len(self._losses) >= 16 or getattr(output, "grad_fn", None) is None:
            return
        if len(args) < 2:
            return
        given, target = args[0], args[1]
        if not _plain(target) or not _plain(output) or (given is not None and not _plain(given)) or not target.numel():
            return
        last = _REDUCTION.get(name)
        if last is None:
            return
        reduction = args[last] if len(args) > last else 1
        value = output.detach()
        value = value.mean() if value.ndim else (value / target.numel() if reduction == 2 else value)
        seen: tuple[dict[str, Any], dict[str, Tensor]] | None
        if name in _CLASSES:
            seen = self._labels(given, target)
        elif name in _BINARY:
            seen = self._flags(name, given, target)
        else:
            seen = _numbers(given, target)
        if seen is None:
            return
        told, columns = seen
        weighted = any(isinstance(extra, Tensor) for extra in args[2:last])
        told |= {
            "name": name,
            "weighted": weighted,
            "unreduced": output.ndim > 0,  # each sample may be given a weight of its own: an advantage
            "rows": int(target.shape[0]) if target.ndim else 1,
            "batch": self._rows,
            "shape": list(target.shape[1:]),
        }
        columns["value"] = value.reshape(1)
        held = {column: _held(tensor) for column, tensor in columns.items()}
        self._losses.append(_Loss(output.grad_fn._sequence_nr(), told, held))

    def backward_starts(self, roots: Sequence[Any], graph: Graph | None) -> None:
        if self._losses:
            self._mark_used(roots)
        if graph is not None and graph.nodes:
            self._graphs += 1
            if self._graphs <= 4 or self._graphs % 8 == 0:
                self._look_at_inputs(graph)

    def data_came(self, batch: Any, loader: Any) -> None:
        if getattr(loader, "_num_workers", 0) >= 2:
            self._workers.batch_came(batch, loader)

    def restart(self) -> None:
        self._forget()
        self._workers.restart()

    def finished(self) -> None:
        self._over = True

    def close(self) -> None:
        self._forget()
        self._flying = {}
        self._relation, self._workers = Relation(), Workers()

    def _forget(self) -> None:
        self._losses, self._inputs, self._features, self._rows = [], [], None, 0

    # -- labels and numbers --------------------------------------------------------------------------------------

    def _labels(self, given: Any, target: Tensor) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        if target.is_floating_point() or target.ndim == 0:
            return None
        classes = given.shape[1] if given is not None and given.ndim > 1 else 0
        told: dict[str, Any] = {"kind": "classes", "classes": int(classes)}
        chooses = given is not None and 2 <= classes <= _MOST_CLASSES
        if target.ndim > 1 or (given is not None and given.ndim != 2):  # a label for each place
            columns = {"labels": torch.cat([_some(one.reshape(-1), self._heard, 16) for one in target[:4]])}
            if chooses and target.shape == (given.shape[0], *given.shape[2:]):
                places = [_some(one.flatten(1).T, self._heard, 16) for one in given.detach()[:4]]
                columns |= _guesses(torch.cat(places))
            return told, columns
        labels = _some(target, self._heard)
        columns = {"labels": labels}
        if chooses:
            columns |= _guesses(_some(given.detach(), self._heard))
            self._relate(target, labels, int(classes), columns)
        return told, columns

    def _flags(self, name: str, given: Any, target: Tensor) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        if target.ndim >= 3 and target.numel() != target.shape[0]:  # a flag for each place of a picture
            if given is None or given.shape != target.shape:
                return None
            targets = torch.cat([_some(one.detach().reshape(-1), self._heard, 16) for one in target[:4]])
            scores = torch.cat([_some(one.detach().reshape(-1), self._heard, 16) for one in given[:4]]).float()
            scores = torch.logit(scores, 1e-6) if name == "binary_cross_entropy" else scores
            columns = {"labels": targets > 0.5, "guesses": scores > 0.0, "scores": scores}
            columns["certain"] = ((targets == 0.0) | (targets == 1.0)).all().reshape(1)
            return {"kind": "classes", "classes": 2}, columns
        if target.ndim == 0 or target.numel() != target.shape[0]:  # many labels a sample
            return None
        flags = _some(target.detach().reshape(-1), self._heard) > 0.5
        columns = {"labels": flags}
        if given is not None and given.numel() == target.numel():
            scores = _some(given.detach().reshape(-1), self._heard).float()
            scores = torch.logit(scores, 1e-6) if name == "binary_cross_entropy" else scores
            columns["guesses"], columns["scores"] = scores > 0.0, scores
            self._relate(target, flags.long(), 2, columns)
        return {"kind": "classes", "classes": 2}, columns

    def _relate(self, target: Tensor, labels: Tensor, classes: int, columns: dict[str, Tensor]) -> None:
        features, self._features = self._features, None
        if features is not None and target.shape[0] == self._rows:
            marks = self._relation.add(features, labels, classes)
            if marks is not None:
                columns["marks"] = marks

    # -- what backward starts from -------------------------------------------------------------------------------

    def _mark_used(self, roots: Sequence[Any]) -> None:
        """Which of the losses this backward starts from, and whether that is all that it starts from."""
        pending = {loss.number: loss for loss in self._losses if not loss.used}
        found: list[_Loss] = []
        others, count = False, 0
        todo = [root.grad_fn for root in roots if isinstance(root, Tensor) and root.grad_fn is not None]
        while todo and count < 64:
            function = todo.pop()
            count += 1
            kind = function.name()
            loss = pending.get(-1 if kind.endswith("AccumulateGrad") else function._sequence_nr())
            if loss is not None:
                found.append(loss)
                continue
            if kind not in _THROUGH and kind not in _TERMS:
                others = True
                continue
            todo += [other for other, _ in function.next_functions if other is not None]
        for loss in found:
            loss.used = True
            loss.told["alone"] = not others and len(found) == 1 and not loss.told["unreduced"]

    def _look_at_inputs(self, graph: Graph) -> None:
        """What goes into the layers that come first: those whose input needs no gradient, and whose weight does."""
        for node in graph.nodes:
            layer = _FIRST_LAYERS.get(node.name) if node.leaf is None else None
            if layer is None or len(self._inputs) >= 4:
                continue
            name, place, weight = layer
            if len(node.into) <= weight or node.into[place] != -1 or node.into[weight] == -1:
                continue
            into = graph.nodes[node.into[weight]]
            if into.leaf is None and not (
                into.into and into.into[0] != -1 and graph.nodes[into.into[0]].leaf is not None
            ):
                continue
            x = node.saved().get(name)
            if x is not None and _plain(x) and x.is_floating_point() and x.ndim >= 2 and x.numel():
                flat = x if node.name == "Convolution" else x.reshape(-1, x.shape[-1])
                self._inputs.append(({"module": node.module, "shape": list(x.shape)}, _scales(flat)))

    # -- facts ---------------------------------------------------------------------------------------------------

    def look(self, pack: Pack, step: int) -> None:
        self._heard += 1
        self._listens = self._heard < _EVERY or self._heard % 64 < 16 or step != self._last + 1
        self._last = step
        losses = [loss for loss in self._losses if loss.used]
        flying: dict[str, Any] = {
            "losses": [(loss.told, self._pack(pack, f"loss{at}", loss.columns)) for at, loss in enumerate(losses)],
            "inputs": [
                (told, self._pack(pack, f"input{at}", {"scales": _held(scales)}))
                for at, (told, scales) in enumerate(self._inputs)
            ],
        }
        strength = self._relation.strength(self._heard)
        if strength is not None:
            flying["relation"] = (self._relation.told(), self._pack(pack, "relation", {"strength": _held(strength)}))
        self._forget()
        self._flying = flying

    def _pack(self, pack: Pack, name: str, columns: dict[str, Tensor | list[float]]) -> dict[str, list[float] | str]:
        """Each column: its values where they lie on the host, else the name under which the pack brings them."""
        where: dict[str, list[float] | str] = {}
        for column, numbers in columns.items():
            if isinstance(numbers, list):
                where[column] = numbers
            else:
                where[column] = f"data/{name}/{column}"
                pack.add(f"data/{name}/{column}", numbers.unbind())
        return where

    def facts(self, values: Values, step: int) -> Mapping[str, Any] | None:
        flying, self._flying = self._flying, {}
        told: dict[str, Any] = {}
        losses = [one | _fetched(where, values) for one, where in flying.get("losses", ())]
        for loss in losses:
            if "marks" in loss:
                self._relation.remember(loss.pop("marks"))
        if losses:
            told["losses"] = [loss | {"value": loss["value"][0]} for loss in losses]
            told["optimizers"] = len(self.watched.optimizers)
        inputs = [
            one | dict(zip(_SCALES, _fetched(where, values)["scales"], strict=True))
            for one, where in flying.get("inputs", ())
        ]
        if inputs:
            told["inputs"] = inputs
        if "relation" in flying:
            one, where = flying["relation"]
            told["relation"] = one | {"strength": _fetched(where, values)["strength"][0]}
        workers = self._workers.told()
        if workers:
            told["workers"] = workers
        if self._over and self._heard > 1:
            told["over"] = True
        return told or None


_SCALES = ("mean", "std", "low", "high", "largest", "column", "middle", "smallest")
"""Of an input: its mean, deviation and range, and the scale (root mean square) of its largest column, which that is,
and of the middle and the smallest one that is not zero."""


def _guesses(given: Tensor) -> dict[str, Tensor]:
    """The class that each row is for, and how sure; of two classes: how sure of the second."""
    best, guesses = given.topk(2, 1)
    sure = best[:, 0] - best[:, 1]
    scores = sure if given.shape[1] > 2 else sure * (2 * guesses[:, 0] - 1)
    return {"guesses": guesses[:, 0], "scores": scores}


def _scales(x: Tensor) -> Tensor:
    x = x.detach()
    x = x[:: max(1, x.shape[0] // 64)][:64]
    if x.ndim > 2:  # a picture's columns are its channels
        x = x.flatten(2)
        x = x[:, :, :: max(1, x.shape[2] // 32)].transpose(1, 2).reshape(-1, x.shape[1])
    if x.shape[1] > 512:
        x = x[:, :: x.shape[1] // 512]
    x = x.float()
    rms = x.square().mean(0).sqrt()
    largest, column = rms.max(0)
    some = torch.where(rms > 0.0, rms, largest)
    numbers = (x.mean(), x.std(correction=0), x.min(), x.max(), largest, column, some.median(), some.min())
    return torch.stack([number.float() for number in numbers])


def _numbers(given: Any, target: Tensor) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    if not target.is_floating_point() or (given is not None and given.shape != target.shape):
        return None
    std, mean = torch.std_mean(_some(target.detach().reshape(-1), 0, 128).float(), correction=0)
    moments = [mean, std]
    if given is not None:
        std, mean = torch.std_mean(_some(given.detach().reshape(-1), 0, 128).float(), correction=0)
        moments += [mean, std]
    return {"kind": "numbers"}, {"moments": torch.stack(moments)}


def _some(tensor: Tensor, turn: int, count: int = SAMPLES) -> Tensor:
    """Some samples in their order, others at another turn: a view."""
    rows = tensor.shape[0]
    if rows <= count:
        return tensor
    every = rows // count
    return tensor[turn % every :: every][:count]


def _first_tensor(values: Sequence[Any]) -> Tensor | None:
    """The first batch among the arguments, one level deep."""
    return next((one for one in tensors_in(values, 2) if one.ndim >= 1 and one.shape[0] and _plain(one)), None)


def _plain(tensor: Any) -> bool:
    return (
        isinstance(tensor, Tensor)
        and type(tensor) in (Tensor, nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_complex()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def _held(tensor: Tensor) -> Tensor | list[float]:
    """Its numbers, if nobody has to wait for them, else a copy."""
    if tensor.device.type == "cpu":
        numbers: list[float] = tensor.tolist()
        return numbers
    return tensor.float().clone()


def _fetched(where: Mapping[str, list[float] | str], values: Values) -> dict[str, list[float]]:
    return {name: values[at] if isinstance(at, str) else at for name, at in where.items()}
