"""One short training, to be compared with others: what it says to a batch, and where some steps lead."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seismograd.costs import samples_in
from seismograd.optimize.tuning.setups import Setup
from seismograd.replay.numbers import mapped, tensors_in
from seismograd.replay.surroundings import Randomness

DRAWS = 12
"""So many random numbers are averaged over."""


def first_batch(setup: Setup, batch: Any) -> tuple[list[Tensor], list[Tensor]]:
    """What the model says to a batch, and the gradients of its loss; nothing is trained."""
    said: list[Any] = []
    model = setup.model
    hook = model.register_forward_hook(lambda _module, _given, output: said.append(output))
    try:
        setup.optimizer.zero_grad()
        loss = setup.loss(batch)
    finally:
        hook.remove()
    loss.backward()  # type: ignore[no-untyped-call]
    output = [one for _, one in tensors_in(said[-1:]) if one.is_floating_point()] if said else []
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in setup.trained.parameters()]
    found = numbers([*output, loss.reshape(1)]), numbers(gradients)
    setup.optimizer.zero_grad()
    return found


def walked(setup: Setup, order: Sequence[Any], early: int) -> tuple[list[Tensor], list[list[Tensor]]]:
    """The losses of these steps, and what each of the first of them added to the weights."""
    losses, moves = list[Tensor](), list[list[Tensor]]()
    for batch in order[:early]:
        before = numbers(setup.trained.parameters())
        losses.append(setup.step(batch))
        after = numbers(setup.trained.parameters())
        moves.append([(one - other).float() for one, other in zip(after, before, strict=True)])
    losses += [setup.step(batch) for batch in order[early:]]
    return losses, moves


def averaged(setup: Setup, batch: Any, randomness: Randomness, first: int) -> tuple[list[Tensor], list[Tensor]]:
    """The same, over many random numbers: what they do averages out, what is wrong stays."""
    total: tuple[list[Tensor], list[Tensor]] | None = None
    for seed in range(first, first + DRAWS):
        seeded(randomness, seed)
        found = first_batch(setup, batch)
        if total is None:
            total = found
            continue
        for kept, new in zip((*total[0], *total[1]), (*found[0], *found[1]), strict=True):
            kept.add_(new)  # they are copies
    assert total is not None
    return [one / DRAWS for one in total[0]], [one / DRAWS for one in total[1]]


def order_of(batches: Sequence[Any], seed: int, steps: int, merged: int) -> list[Any]:
    """The batches of so many steps: pass after pass, for other seeds each pass in another order."""
    generator, order = random.Random(seed), list[Any]()
    while len(order) < steps:
        walk = list(batches)
        if seed and len(walk) > 1:
            generator.shuffle(walk)
        elif seed:  # there is but one: other samples of the same kind
            walk = [_resampled(batch, seed + len(order)) for batch in walk]
        order += walk
    order = order[:steps]
    if merged == 1:
        return order
    return [joined(order[at : at + merged]) for at in range(0, len(order) - merged + 1, merged)]


def joined(batches: Sequence[Any]) -> Any:
    """Several batches as one: their tensors one below the other."""
    columns = [iter([one for _, one in tensors_in(batch)]) for batch in batches]
    return mapped(batches[0], lambda _tensor: torch.cat([next(column) for column in columns]))


def _resampled(batch: Any, seed: int) -> Any:
    count = samples_in(batch)
    if any(not one.ndim or len(one) != count for _, one in tensors_in(batch)):
        return batch
    chosen = torch.randint(0, count, (count,), generator=torch.Generator().manual_seed(seed))
    return mapped(batch, lambda tensor: tensor[chosen.to(tensor.device)])


def disturbed(setup: Setup, seed: int) -> Setup:
    """Weights that differ in their last bit."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in setup.trained.parameters():
            if one.is_floating_point():
                noise = torch.randn(one.shape, generator=generator).to(one)
                one.mul_(1 + torch.finfo(one.dtype).eps * noise)
    return setup


def seeded(randomness: Randomness, seed: int) -> None:
    randomness.restore()
    if seed:
        torch.manual_seed(seed)
        random.seed(seed)


def in_double(setup: Setup) -> Setup:
    """The whole of it in float64, the optimizer's state and the batches too."""
    for one in (setup.trained, setup.loss_fn):
        if isinstance(one, torch.nn.Module):
            one.double()  # in place, so the optimizer has the same parameters
    for state in setup.optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.is_floating_point() and name != "step":
                state[name] = value.double()
    setup.batches = [mapped(batch, _doubled) for batch in setup.batches]
    return setup


def _doubled(tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def numbers(tensors: Any) -> list[Tensor]:
    return [one.detach().to("cpu", torch.float64, copy=True) for one in tensors]
