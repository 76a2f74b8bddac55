"""The error of a backward pass whose loss has no history."""

from __future__ import annotations

from seismograd.places import Spot, is_users, spot_of_trace

_MESSAGE = "does not require grad and does not have a grad_fn"


def has_no_history(error: BaseException | None) -> bool:
    """Whether torch says so: nothing that the loss was computed from needs a gradient, or the way to it is cut."""
    return isinstance(error, RuntimeError) and _MESSAGE in str(error)


def raised_at(error: BaseException) -> Spot | None:
    """The deepest of the user's lines that the error came through."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            found = spot_of_trace(trace)
        trace = trace.tb_next
    return found
