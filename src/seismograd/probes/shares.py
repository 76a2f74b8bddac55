"""Which share of a step's loss one backward pass is of: the loss of an accumulated step, as its user would call it.

A loop that accumulates divides each loss by the number of batches, or sums it over a batch and divides by what all
batches of the step hold: either way the step's loss is the sum. A loop that divides by nothing calls the mean its loss.
The graph of what `backward` is called on shows which it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_CARRIES_ON = ("ToCopy", "Clone", "View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Alias")
"""These hand a number on as it is."""
_LONGEST = 8
"""So many nodes are looked at: what divides a loss stands at its end."""
_SUM = 2
"""torch's number for `reduction="sum"`."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a loss was divided by last, and how many items it is a sum of."""

    batches: int | None = None
    """The divisor, if it is a whole number on the host, 2 or more: maybe that of the batches of a step."""
    divisor: Tensor | None = None
    items: Tensor | int | None = None
    """Of a sum over the items of a batch: their number."""


def share_of(root: Any) -> Share | None:
    """The share that the graph of this loss shows; `None` if nothing divides it."""
    return _share_from(getattr(root, "grad_fn", None))


def _share_from(start: Any) -> Share | None:
    node, divisor = next(_from(start), (None, None))
    if node is not None and divisor is not None:
        below, again = next(_from(node.next_functions[0][0]), (None, None))
        return Share(_batches(divisor), divisor, None if below is None or again is not None else _items(below))
    if node is None or _name(node) != "Add":
        return None
    # A sum of weighted terms, as of label smoothing: if all are sums over items, the first one speaks for them.
    found = [_share_from(_without_weight(other)) for other, _ in node.next_functions]
    return found[0] if found and all(share is not None and share.items is not None for share in found) else None


def _without_weight(node: Any) -> Any:
    if (
        node is not None
        and _name(node) == "Mul"
        and len(node.next_functions) == 2
        and node.next_functions[1][0] is None
    ):
        return node.next_functions[0][0]
    return node


def whole_of(root: Any) -> tuple[Any, int] | None:
    """The node that made a loss before it was divided, and the whole number that it was divided by; 1 for none."""
    batches = 1
    for node, divisor in _from(getattr(root, "grad_fn", None)):
        if divisor is None:
            return node, batches
        if batches != 1 or (count := _batches(divisor)) is None:
            return None
        batches = count
    return None


def divisors_of(root: Any) -> tuple[int, ...]:
    """The whole numbers that a loss was divided by, one after another: those written as divisions, the last first.
    None of a sum, which may well be divided by what it is a sum of, and again."""
    found = list(_from(getattr(root, "grad_fn", None)))
    below = next((node for node, divisor in found if divisor is None), None)
    if below is None or _name(below) == "Add" or _items(below) is not None:
        return ()
    divided = [divisor for node, divisor in found if divisor is not None and _name(node) == "Div"]
    return tuple(count for divisor in divided if (count := _batches(divisor)) is not None)


def loss_of(losses: Sequence[Tensor], shares: Sequence[Share | None], usual: int | None) -> Tensor:
    """The loss of a step from those of its backward passes; `usual`: what this loop is known to divide by."""
    count = len(losses)
    batches = _common(shares)
    if count == 1:
        return losses[0] if batches is None or batches != usual else losses[0] * batches
    stacked = torch.stack([loss.float() for loss in losses])
    if batches is not None and batches in (count, usual):
        return stacked.sum() if batches == count else stacked.sum() * (batches / count)
    if all(share is not None and share.items is not None for share in shares):
        return _of_items(stacked, [share for share in shares if share is not None])
    return stacked.mean()


def accumulates(shares: Sequence[Share | None]) -> int | None:
    """By how many batches a step divides, if it has as many."""
    batches = _common(shares)
    return batches if batches == len(shares) else None


def _common(shares: Sequence[Share | None]) -> int | None:
    """The whole number that all were divided by, each being one value and no sum over items."""
    found = {None if share is None or share.items is not None else share.batches for share in shares}
    return found.pop() if len(found) == 1 else None


def _of_items(losses: Tensor, shares: Sequence[Share]) -> Tensor:
    """Sums over items: if all are divided by one number, which counts those of the whole step, they are its shares."""
    device = losses.device
    divisors = torch.stack([torch.as_tensor(share.divisor, device=device).float().reshape(()) for share in shares])
    items = torch.stack([torch.as_tensor(share.items, device=device).float().reshape(()) for share in shares])
    shared = (divisors == divisors[0]).all() & (divisors[0] > items.max()) & (divisors[0] >= items.sum() / 2)
    return torch.where(shared, losses.sum(), losses.mean())


def _from(node: Any) -> Iterator[tuple[Any, Tensor | None]]:
    """From here on the nodes that divide a number by another than 1, with their divisors, then the one that made it."""
    for _ in range(_LONGEST):
        if node is None:
            return
        divisor = _divisor(node)
        if divisor is None and _name(node) not in _CARRIES_ON:
            yield node, None
            return
        if divisor is not None and not is_one(divisor):
            yield node, divisor
        node = node.next_functions[0][0]


def _name(node: Any) -> str:
    return str(node.name()).rpartition("::")[2].rstrip("0123456789").removesuffix("Backward")


def _divisor(node: Any) -> Tensor | None:
    """What this node divides by: one number, that needs no gradient."""
    name = _name(node)
    if name not in ("Div", "Mul") or len(node.next_functions) != 2 or node.next_functions[1][0] is not None:
        return None
    other = _saved(node, "other")
    if other is None or other.numel() != 1:
        return None
    if name == "Div":
        return other
    if not (factor := _at_hand(other)):
        return None
    divisor = torch.tensor(1 / factor, dtype=torch.float64, device="cpu")
    return divisor if is_one(divisor) or _batches(divisor) is not None else None  # else a weight


def _saved(node: Any, name: str) -> Tensor | None:
    """What autograd keeps for it under this name; nothing that would have to be computed again."""
    try:
        raw = getattr(node, f"_raw_saved_{name}")
        saved = None if raw is None or raw.unpack_hook is not None else getattr(node, f"_saved_{name}")
    except (AttributeError, RuntimeError):  # freed, or changed since
        return None
    return saved.detach() if isinstance(saved, Tensor) else None


def _at_hand(divisor: Tensor) -> float | None:
    """The number, if it lies on the host."""
    try:
        return float(divisor.numpy().reshape(())) if divisor.device.type == "cpu" else None
    except (RuntimeError, TypeError):  # of a kind that NumPy has not, or of no memory
        return None


def is_one(divisor: Tensor | None) -> bool:
    """Whether it is the number 1, and lies on the host."""
    return divisor is not None and divisor.numel() == 1 and _at_hand(divisor) == 1.0


def _batches(divisor: Tensor) -> int | None:
    value = _at_hand(divisor)
    if value is None:
        return None
    whole = round(value) if 1.5 < value < 1e9 else 0
    return whole if whole and abs(value - whole) < 1e-6 * whole else None


def _items(node: Any) -> Tensor | int | None:
    """How many items this node sums up, if it does."""
    name = _name(node)
    if name == "Sum":
        sizes = getattr(node, "_saved_self_sym_sizes", None)
        return None if sizes is None else int(torch.Size(sizes).numel())
    if getattr(node, "_saved_reduction", None) != _SUM:
        return None
    target = _saved(node, "target")
    if target is None:
        return None
    if not name.startswith("NllLoss"):
        return int(target.numel())
    ignored = node._saved_ignore_index
    valid: Tensor = target != (ignored - (1 << 64) if ignored >= 1 << 63 else ignored)
    return valid.sum()
