"""What can be done about an error of a training step: `recovery_strategy`, and handlers of the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from seismograd.memory.exhaustion import is_out_of_memory
from seismograd.recovery.recording import free_memory, logger, record

Handler = Callable[[Exception, Mapping[str, Any]], object]
Predicate = Callable[[Exception], object]

_GRADIENT = re.compile(r"\b(?:gradients?|grads?)\b|\b\w+Backward\d*'? returned nan", re.IGNORECASE)
_NOT_FINITE = re.compile(r"\b(?:nans?|infs?|infinity|infinite|non-?finite|not finite)\b", re.IGNORECASE)
_MISTAKES = re.compile(
    r"\b(?:shapes?|sizes?|dtypes?|devices?|dimensions?|inplace|in-place|second time|not require|grad_fn|implicitly"
    r"|not implemented|unused|leaf|must match|invalid gradient|unscale|requires? grad(?:ient)?|different type)\b",
    re.IGNORECASE,
)
"""Words about gradients that come again with every batch: the code has to be mended."""


def recovery_strategy(error: Exception, context: Mapping[str, Any] | None = None) -> bool:
    """Does what can be done about an error, and says whether the training may go on with the next batch.

    | error | what is done |
    |---|---|
    | one that `register_recovery` has a handler for | the handler is called |
    | out of memory | garbage and the allocators' caches are freed |
    | of gradients | gradients are zeroed; False where there is nobody whose gradients could be |
    | NaN or infinite values | the batch is to be skipped: `context["skip_batch"]` is True |
    | any other | nothing: False |

    Whatever a backward pass had left behind in the gradients of `context["model"]` and `context["optimizer"]` is
    zeroed each time. A mistake in the code (a gradient's shape, a second backward) is none of these. Each recovery is
    logged, and told to `context["debugger"]`, `context["watch"]` and `context["error_system"]` where they are there.
    """
    if not isinstance(error, BaseException):
        raise TypeError(f"error is {error!r}, not an exception")
    context = {} if context is None else context
    action = _by_hand(error, context)
    if action is None:
        action = _built_in(error, context)
    record(error, context, action or "it has to be mended", recovered=action is not None)
    return action is not None


def _built_in(error: Exception, context: Mapping[str, Any]) -> str | None:
    """What was done about the error, in words; `None` if nothing could be."""
    if is_out_of_memory(error):
        cleared = _zero_gradients(context)
        free_memory()
        return "unused memory was freed" + (", gradients were zeroed" if cleared else "")
    text = str(error)
    of_gradients = _GRADIENT.search(text) and not _MISTAKES.search(text)
    if of_gradients and isinstance(error, (RuntimeError, ArithmeticError)):
        return "gradients were zeroed" if _zero_gradients(context) else None
    if isinstance(error, (RuntimeError, ArithmeticError, ValueError)) and _NOT_FINITE.search(text):
        cleared = _zero_gradients(context)
        if isinstance(context, MutableMapping):
            context["skip_batch"] = True
        return "the batch is skipped" + (", gradients were zeroed" if cleared else "")
    return None


def _zero_gradients(context: Mapping[str, Any]) -> bool:
    """Whether there was somebody whose gradients could be zeroed."""
    owners = [one for name in ("model", "optimizer") for one in _several(context.get(name))]
    for owner in owners:
        owner.zero_grad()
    return bool(owners)


def _several(owner: Any) -> list[Any]:
    if isinstance(owner, Mapping):
        owner = list(owner.values())
    owners = owner if isinstance(owner, (list, tuple)) else [owner]
    return [each for each in owners if callable(getattr(each, "zero_grad", None))]


# -- handlers of the user's own ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Registration:
    """A handler that is registered: `remove()` it, or use it as a context that removes it."""

    when: Predicate
    handler: Handler
    name: str

    def remove(self) -> None:
        if self in _registered:
            _registered.remove(self)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.remove()


_registered: list[Registration] = []


def register_recovery(
    when: type[BaseException] | tuple[type[BaseException], ...] | str | Predicate,
    handler: Handler,
    *,
    name: str | None = None,
) -> Registration:
    """Has `handler(error, context)` called for errors of this kind, before anything else is tried; the last one first.

    `when` is a class of exceptions or several, words of the message, or a function of the error. The handler returns
    True if the training may go on; otherwise the next one is asked.
    """
    if not callable(handler):
        raise TypeError(f"handler is {handler!r}: it takes a function of the error and the context")
    called = name or str(getattr(handler, "__name__", type(handler).__name__))
    registration = Registration(_predicate(when), handler, called)
    _registered.append(registration)
    return registration


def _predicate(when: Any) -> Predicate:
    if isinstance(when, str):
        words = when.lower()
        if not words.strip():
            raise ValueError(f"when is {when!r}, which is in every message: give words of the error's message")
        return lambda error: words in str(error).lower()
    kinds = when if isinstance(when, tuple) else (when,)
    if kinds and all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        return lambda error: isinstance(error, kinds)
    if callable(when):
        return when  # type: ignore[no-any-return]
    raise TypeError(f"when is {when!r}: it takes a class of exceptions, words of a message, or a function of the error")


def _by_hand(error: Exception, context: Mapping[str, Any]) -> str | None:
    """What a handler of the user's own did."""
    for registration in _matching(error):
        try:
            if registration.handler(error, context):
                return f"{registration.name} handled it"
        except Exception as failure:
            logger.exception("the handler %s failed itself: %s", registration.name, failure)
    return None


def _matching(error: Exception) -> Iterator[Registration]:
    for registration in reversed(list(_registered)):
        try:
            matches = registration.when(error)
        except Exception as failure:
            logger.exception("the condition of %s failed itself: %s", registration.name, failure)
            continue
        if matches:
            yield registration
