"""What may be trained to see how it goes: everything is put back, or happens to a copy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from seismograd.costs import cost
from seismograd.learning_rate import put_back
from seismograd.onlookers.graph import Graph
from seismograd.preflight.rehearsal import Rehearsal, rehearse
from seismograd.replay.numbers import mapped, tensors_in
from seismograd.replay.rewind import Rewind
from seismograd.replay.surroundings import Randomness


class CannotCheckError(Exception):
    """The check is left out; the message says why."""


class Trial:
    """A model, a batch and a loss that may be trained: whatever happens in `aside()` is put back."""

    def __init__(
        self, model: nn.Module, batch: Any, loss_fn: Callable[..., Any] | None, optimizer: Optimizer | None, loader: Any
    ) -> None:
        self.model, self.batch, self.loss_fn, self.optimizer, self.loader = model, batch, loss_fn, optimizer, loader
        self.step_seconds = 0.0
        self._rehearsal: Rehearsal | None = None

    def loss(self) -> Any:
        """The loss of the batch."""
        return cost(self.model, self.loss_fn, next(iter(self)))

    def __iter__(self) -> Iterator[Any]:
        """The batch, once: a copy, which the model may change."""
        yield mapped(self.batch, _copy)

    def step(self, optimizer: Optimizer) -> float:
        """One step of training on the batch."""

        def closure() -> Any:
            optimizer.zero_grad()
            loss = self.loss()
            loss.backward()
            return loss.detach()

        return float(optimizer.step(closure))

    def an_optimizer(self) -> Optimizer:
        """The user's, or one that would do."""
        return self.optimizer if self.optimizer is not None else self.adam(1e-3)

    def adam(self, lr: float) -> Optimizer:
        """Adam for what the user would train."""
        held = None if self.optimizer is None else [p for g in self.optimizer.param_groups for p in g["params"]]
        trained = [p for p in held or self.model.parameters() if p.requires_grad]
        return torch.optim.Adam(trained, lr=lr)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Afterwards parameters, buffers, gradients, flags, optimizer, generators and loader are as they were."""
        modules = [one for one in (self.model, self.loss_fn) if isinstance(one, nn.Module)]
        with ExitStack() as stack:
            stack.enter_context(Rewind(modules))
            stack.enter_context(put_back(self.model, self.an_optimizer(), self.loss_fn, self.loader))
            stack.enter_context(torch.enable_grad())
            if not self.model.training:  # parts that stand in eval mode in a model in train mode were meant to
                self.model.train()
            yield

    @property
    def rehearsal(self) -> Rehearsal:
        """Some steps of training under watch: made once, for all checks."""
        if self._rehearsal is None:
            with self.aside():
                self._rehearsal = rehearse(self.model, self.an_optimizer(), self.loss, self.batch)
        return self._rehearsal

    def on_a_copy(self) -> Trial:
        """The same with copies of model, loss and optimizer; says why where they would not stand alone."""
        copies: dict[int, Any] = {}
        randomness = Randomness.now()  # a model's own way to be copied may draw
        try:
            model, loss_fn, optimizer = copy.deepcopy((self.model, self.loss_fn, self.optimizer), copies)
            twin = Trial(model, self.batch, loss_fn, optimizer, self.loader)
            with twin.aside():
                batch = next(iter(twin))
                own = {id(one) for one in copies.values()} | {id(one) for _, one in tensors_in(batch)}
                graph = Graph([cost(model, loss_fn, batch)])
                alone = graph.complete and all(id(leaf) in own for leaf in graph.leaves)
        except Exception as error:
            raise CannotCheckError(f"a copy of the model does not work ({type(error).__name__}: {error})") from None
        finally:
            randomness.restore()
        if not alone:
            raise CannotCheckError("the loss reaches parameters outside of the model, which a copy would share")
        twin.step_seconds = self.step_seconds
        return twin


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)
