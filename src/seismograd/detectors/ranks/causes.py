"""Why replicas part: what the signs of a parting say, each with a sentence and advice of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seismograd.detectors.ranks.facts import amount, are, by_rank, capital, mapping, ranks_in, who, words
from seismograd.detectors.wording import names, number


@dataclass(frozen=True)
class Cause:
    """A likely cause: its name, who did it, the sentence without its full stop, and what to do."""

    name: str
    ranks: tuple[int, ...]
    """Who did it, if only some did."""
    why: str
    advice: tuple[str, ...]
    sign: bool = True
    """Whether a rank was seen doing it; else it is read off what differs."""


def cause_of(
    signs: Mapping[str, Any],
    *,
    gradients: bool,
    kind: str,
    world: int,
    told: Iterable[str] = (),
    began_apart: bool = False,
) -> Cause:
    """The likeliest cause. `gradients`: whether those differ, too; `told`: the names of what differs; `began_apart`:
    whether they were never alike, though the gradients are averaged."""
    if began_apart:
        return _BEGAN_APART
    before = (_inside, _no_sync, _foreign, _control_flow, _unstepped)
    after = (_outside_of_some, _unstepped, _clipped, _rates, _foreign, _no_sync, _outside)
    differing = set(told)
    for look in before if gradients else after:
        cause = look(signs, world, differing)
        if cause is not None:
            return cause
    return _collectives(signs, world) or _unknown(gradients, kind)


_BEGAN_APART = Cause(
    "different-start",
    (),
    "the ranks began with different weights: they step with the very same gradients, and nothing ever made their"
    " parameters alike; another seed on each rank, or weights that were loaded on one of them alone",
    (
        "Before the first step give all ranks the weights of one: `for t in [*model.parameters(), *model.buffers()]:"
        " dist.broadcast(t.data, src=0)`. `DistributedDataParallel(model)` does it by itself.",
        "Or the same `torch.manual_seed` on all ranks before the model is made, and a seed of their own only after it,"
        " for the data and dropout.",
    ),
)


def _doers(ranks: Sequence[int], world: int) -> tuple[str, tuple[int, ...]]:
    """Who did it as a subject, and the ranks to blame: none if all did."""
    if len(ranks) >= world:
        return "every rank", ()
    return who(ranks), tuple(ranks)


def _inside(signs: Mapping[str, Any], world: int, _: set[str]) -> Cause | None:
    ranks = ranks_in(signs.get("called_inside"))
    if not ranks:
        return None
    doer, blamed = _doers(ranks, world)
    return Cause(
        "forward-past-wrapper",
        blamed,
        f"{doer} {are(ranks if blamed else [0], 'calls', 'call')} the module inside the wrapper (`model.module(x)`), so"
        " that nothing averages the gradients of that pass",
        (
            "Call the wrapper itself in training: `model(x)`, not `model.module(x)`; `model.module` is for"
            " `state_dict()` and for evaluation on one rank.",
        ),
    )


def _no_sync(signs: Mapping[str, Any], world: int, _: set[str]) -> Cause | None:
    ranks = ranks_in(signs.get("no_sync"))
    if not ranks:
        return None
    doer, blamed = _doers(ranks, world)
    many = are(ranks if blamed else [0], "its", "their")
    return Cause(
        "no-sync",
        blamed,
        f"on {doer} the last backward before the step ran under `no_sync()`, so that {many} gradients stayed apart",
        (
            "Run the last micro-batch of a step outside `no_sync()`: `with model.no_sync() if not last else"
            " nullcontext():`, with forward and backward inside it; `last` has to be true for an epoch's last"
            " batch, too.",
        ),
    )


def _foreign(signs: Mapping[str, Any], world: int, differing: set[str]) -> Cause | None:
    by = {rank: words(each) for rank, each in by_rank(signs.get("foreign")).items()}
    every = list(dict.fromkeys(name for each in by.values() for name in each))
    if not every or (differing and not differing & set(every)):
        return None
    _, blamed = _doers(list(by), world)
    them = "it was" if len(every) == 1 else "they were"
    return Cause(
        "parameters-unknown-to-wrapper",
        blamed,
        f"the wrapper does not know {names(every)}: {them} made or replaced after the model was wrapped, and nothing"
        f" averages {'its gradient' if len(every) == 1 else 'their gradients'}",
        (
            "Make the model whole before it is wrapped: new layers, `add_module`, `requires_grad_(True)` and"
            " `load_state_dict(..., assign=True)` belong before `DistributedDataParallel(model)`; or wrap it anew.",
            "Then make the optimizer from the wrapped model's parameters.",
        ),
    )


def _control_flow(signs: Mapping[str, Any], world: int, _: set[str]) -> Cause | None:
    by = {rank: words(each) for rank, each in by_rank(signs.get("ungraded")).items()}
    every = list(dict.fromkeys(name for each in by.values() for name in each))
    other = ranks_in(signs.get("graded_otherwise"))
    if not every and not other:
        return None
    doer, blamed = _doers(list(by) if every else other, world)
    if len(by) > 1 and not set.intersection(*(set(each) for each in by.values())):  # each its own branch
        told = [f"{names(each)} had no gradient on rank {rank}" for rank, each in list(by.items())[:2]]
        why, blamed = f"{', and '.join(told)}, while other ranks had one: the forward pass took another way", ()
    elif every:
        why = f"{names(every)} had no gradient on {doer}, while other ranks had one: the forward pass took another way"
    else:
        why = f"other parameters had a gradient on {doer} than on the rest: the forward pass took another way"
    return Cause(
        "control-flow",
        blamed,
        f"{why} there, by a condition that depends on the data or on the rank",
        (
            "Let all ranks take the same way: decide from what all of them know (the step), or agree first"
            " (`dist.all_reduce` of the flag).",
            "Or use both branches on every rank, the one that is not wanted times 0:"
            " `loss + 0 * sum(p.sum() for p in head.parameters())`; under DDP also `find_unused_parameters=True`.",
        ),
    )


def _unstepped(signs: Mapping[str, Any], world: int, _: set[str]) -> Cause | None:
    ranks = ranks_in(signs.get("unstepped"))
    if not ranks or len(ranks) >= world:
        return None
    return Cause(
        "step-skipped",
        tuple(ranks),
        f"{who(ranks)} did not step while the others did: a `continue`, a condition on its own loss, or a `GradScaler`"
        " that found Inf there alone",
        (
            "Let all ranks skip a step together: decide after the gradients are averaged, or share the decision"
            " (`dist.all_reduce(flag, op=dist.ReduceOp.MAX)`).",
        ),
    )


def _outside(signs: Mapping[str, Any], world: int, differing: set[str]) -> Cause | None:
    by = {rank: words(each) for rank, each in by_rank(signs.get("changed_outside")).items()}
    every = list(dict.fromkeys(name for each in by.values() for name in each))
    if not by or (differing and every and not differing & set(every)):
        return None
    doer, blamed = _doers(list(by), world)
    what = names(every) if every else "parameters"
    return Cause(
        "changed-outside-optimizer",
        blamed,
        f"{what} {'was' if len(every) == 1 else 'were'} written to outside the optimizer on {doer}, after the model was"
        " wrapped: the wrapper averages gradients, and never looks at the weights again",
        (
            "Change weights (`load_state_dict`, `init`, clamping, weight averaging, tying) on all ranks alike, or on"
            " rank 0 followed by `dist.broadcast(parameter.data, src=0)`; loading belongs before the wrapping.",
        ),
    )


def _outside_of_some(signs: Mapping[str, Any], world: int, differing: set[str]) -> Cause | None:
    cause = _outside(signs, world, differing)
    return cause if cause is not None and cause.ranks else None  # what all ranks do may well be alike


def _clipped(signs: Mapping[str, Any], world: int, _: set[str]) -> Cause | None:
    norms = {rank: value for rank, each in by_rank(signs.get("clipped")).items() if (value := amount(each)) is not None}
    if not norms:
        return None
    low, high = min(norms, key=lambda rank: norms[rank]), max(norms, key=lambda rank: norms[rank])
    lacking = [rank for rank in range(min(world, 64)) if rank not in norms] if len(norms) < min(world, 16) else []
    if norms[low] != norms[high]:
        why = (
            f"the gradients agree, and yet rank {high} clips them to {number(norms[high])} and rank {low} to"
            f" {number(norms[low])}: each rank scales its gradients by another factor"
        )
        blamed: tuple[int, ...] = ()
    elif lacking and world == 2:  # whether it is too much or too little is not known
        why, blamed = f"rank {high} clips the gradients, and rank {lacking[0]} does not", ()
    elif lacking:
        why = f"{who(lacking)} did not clip the gradients, while the others did"
        blamed = tuple(lacking)
    else:
        return None
    return Cause(
        "unsynchronised-clipping",
        blamed,
        why,
        (
            "Clip once, after backward, over `model.parameters()` of the whole model, on every rank: the norm of"
            " averaged gradients is then the same everywhere.",
            "If each rank holds only a part, or clips before the gradients are averaged, add up the squared norms with"
            " `dist.all_reduce` first.",
        ),
    )


def _rates(signs: Mapping[str, Any], world: int, _: set[str]) -> Cause | None:
    rates = {rank: each for rank, each in by_rank(signs.get("rates")).items() if isinstance(each, Sequence)}
    written = {
        rank: ", ".join(number(v) for one in each if (v := amount(one)) is not None) for rank, each in rates.items()
    }
    if len(set(written.values())) < 2:
        return None
    lone = _minority(written)
    first = lone[0] if lone else max(written)
    other = next(rank for rank, text in written.items() if text != written[first])
    return Cause(
        "learning-rates",
        tuple(lone),
        f"the learning rate is {written[first]} on rank {first} and {written[other]} on rank {other}",
        (
            "Step the scheduler at the same moments on all ranks. One that looks at a metric (`ReduceLROnPlateau`) has"
            " to be given the mean over ranks: `dist.all_reduce(loss, op=dist.ReduceOp.AVG)`.",
        ),
    )


def _collectives(signs: Mapping[str, Any], world: int) -> Cause | None:
    counts = {rank: each for rank, each in by_rank(signs.get("collectives")).items() if amount(each) is not None}
    if len(set(counts.values())) < 2:
        return None
    lone = _minority({rank: str(each) for rank, each in counts.items()})
    low, high = min(counts, key=lambda rank: counts[rank]), max(counts, key=lambda rank: counts[rank])
    return Cause(
        "collective-skipped",
        tuple(lone),
        f"rank {low} has run {counts[low]:,} collectives so far, and rank {high} {counts[high]:,}: one was left out,"
        " and what comes after it averages things that do not belong together",
        (
            "No collective may stand inside a condition that is not the same on all ranks: `if rank == 0:`, an early"
            " `continue`, a loop over a loader that is shorter there.",
            "`TORCH_DISTRIBUTED_DEBUG=DETAIL` makes torch compare every collective over ranks, and raise at the first"
            " that differs.",
        ),
    )


def _minority(values: Mapping[int, str]) -> list[int]:
    """The ranks whose value is not the usual one, if there is a usual one."""
    groups: dict[str, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(value, []).append(rank)
    largest, *rest = sorted(groups.values(), key=len, reverse=True)
    return sorted(rank for group in rest for rank in group) if len(largest) > len(values) / 2 else []


def _unknown(gradients: bool, kind: str) -> Cause:
    if gradients and kind == "replicas":
        why = (
            "what averages the gradients by hand was left out at that step, or does not reach all of them; or a rank"
            " changes its own afterwards, by a factor that only it knows"
        )
        advice = [
            "Look at what averages the gradients: every parameter, on every rank, at every step, before the optimizer."
            " What comes after it, clipping above all, has to see the averaged ones: a norm of before differs.",
        ]
    elif gradients:
        why = "their gradients differ, too, although the wrapper should have averaged them; why is not known"
        advice = [
            "Look for a backward that the wrapper does not see: `autograd.grad`, a second loss, hooks on gradients."
        ]
    else:
        why = "their gradients agree, so that the updates differ, or something else writes to them; why is not known"
        advice = [
            "Compare what the optimizers have on the ranks: settings of each group, and state (`momentum_buffer`,"
            " `exp_avg`) after a checkpoint was loaded on some ranks only."
        ]
    return Cause("unknown", (), why, tuple(advice), sign=False)


def sentence(cause: Cause) -> str:
    """What a message says of it."""
    return f"Likely cause: {cause.why}." if cause.sign else f"{capital(cause.why)}."


HARD = ("called_inside", "no_sync", "foreign", "ungraded", "graded_otherwise", "unstepped", "changed_outside", "rates")
"""Signs after which a difference is real, however small it still is."""


def newer(known: dict[str, tuple[int, Any]], facts: Mapping[str, Any], step: int) -> None:
    """Keeps each sign with the last step at which it was seen."""
    for sign, told in mapping(facts, "signs").items():
        if told:
            known[str(sign)] = (step, told)
