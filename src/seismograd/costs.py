"""What a batch costs: the ways in which models, losses and batches of any structure go together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

LABELS = ("labels", "label", "targets", "target", "y")
"""The names under which a dict holds what is to be predicted."""

_MODELS = ("model", "net", "network", "module")


def cost(model: Any, loss_fn: Callable[..., Any] | None, batch: Any) -> Any:
    """The loss of one batch.

    | batch | loss_fn | the loss |
    |---|---|---|
    | anything | `None` | `model(**batch).loss`, or the output itself if it is one number |
    | anything | `f(model, batch)`: the first argument is called model or net | `f(model, batch)` |
    | `(x, y)` | `f(output, target)` | `f(model(x), y)` |
    | `(x1, x2, y)` | a loss of torch's | `f(model(x1, x2), y)` |
    | a dict with `labels` or `target` in it | a loss of torch's | `f(model(**rest), labels)` |
    | anything | `f(output)`, with one argument | `f(model(x))` |
    | any other | `f(a, b)` | `f(model, batch)` |

    `x` itself may be a tuple or dict of what the model takes.
    """
    if loss_fn is None:
        return _own_loss(call(model, batch))
    if _takes_model(loss_fn):
        return loss_fn(model, batch)
    if isinstance(batch, Mapping):
        known = [name for name in LABELS if name in batch]
        if _arguments(loss_fn) == 1:
            return loss_fn(call(model, batch))
        if known and _is_torchs(loss_fn):
            return loss_fn(call(model, {name: one for name, one in batch.items() if name != known[0]}), batch[known[0]])
        return loss_fn(model, batch)
    pair = isinstance(batch, (tuple, list)) and (len(batch) == 2 or (len(batch) > 2 and _is_torchs(loss_fn)))
    if pair and _arguments(loss_fn) != 1:
        *inputs, target = batch
        return loss_fn(call(model, inputs[0] if len(inputs) == 1 else tuple(inputs)), target)
    if _arguments(loss_fn) == 1:
        return loss_fn(call(model, batch))
    return loss_fn(model, batch)


def call(model: Any, x: Any) -> Any:
    """The model's output: a tuple or list is given one by one, a dict by name unless the model takes it as a whole."""
    if isinstance(x, Mapping) and _takes(model, x):
        return model(**x)
    if isinstance(x, (tuple, list)) and not hasattr(x, "_fields"):
        return model(*x)
    return model(x)


def _takes(model: Any, x: Mapping[str, Any]) -> bool:
    """Whether the model takes the dict's items by their names, and not the dict."""
    try:
        parameters = inspect.signature(getattr(getattr(model, "_orig_mod", model), "forward", model)).parameters
    except (TypeError, ValueError):
        return True
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return True
    needed = [
        name for name, each in parameters.items() if each.default is each.empty and each.kind is not each.VAR_POSITIONAL
    ]
    return bool(x) and (all(name in parameters for name in x) or len(needed) != 1)


def _own_loss(output: Any) -> Any:
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None and hasattr(output, "numel") and output.numel() == 1:
        loss = output
    if loss is None:
        raise TypeError(f"the model returned a {type(output).__name__} without a loss: pass a loss_fn")
    return loss


def _takes_model(loss_fn: Callable[..., Any]) -> bool:
    names = _names(loss_fn)
    return bool(names) and names[0].lower() in _MODELS


def _is_torchs(loss_fn: Callable[..., Any]) -> bool:
    """Whether it compares an output with a target, as all losses of torch's do, and those made like them."""
    return hasattr(loss_fn, "forward") or str(getattr(loss_fn, "__module__", "")).startswith("torch.")


def _arguments(loss_fn: Callable[..., Any]) -> int:
    """How many arguments it has to be given; 2 where that cannot be seen."""
    return len(_names(loss_fn, needed=True)) or 2


def _names(loss_fn: Callable[..., Any], *, needed: bool = False) -> list[str]:
    try:
        parameters = inspect.signature(getattr(loss_fn, "forward", loss_fn)).parameters.values()
    except (TypeError, ValueError):
        return []
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [one.name for one in parameters if one.kind in places and not (needed and one.default is not one.empty)]


def samples_in(batch: Any, inside: bool = False) -> int:
    """How many samples a batch has, by its target: the last of several parts, or the one with the name of a target."""
    from torch import Tensor

    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 1
    if isinstance(batch, Mapping) and batch:
        named = [batch[name] for name in LABELS if isinstance(batch.get(name), Tensor) and batch[name].ndim]
        return samples_in((*named, *batch.values())[0], inside=True)
    if isinstance(batch, (tuple, list)) and batch:
        if not inside:
            return samples_in(batch[-1], inside=True)
        lengths = {len(part) for part in batch if isinstance(part, Tensor) and part.ndim}
        return lengths.pop() if len(lengths) == 1 else len(batch)  # several targets, or one for each sample
    return 1
