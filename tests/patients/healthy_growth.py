"""Healthy: graphs that span several steps or grow for a while, memory and processors used to the full."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.register import healthy
from patients.sick_growth import Meter, Recurrent, classifier


def signs() -> tuple[Tensor, Tensor]:
    x = torch.randn(16, 5, 4)
    return x, (x.sum((1, 2)) > 0).long()


@healthy()
def state_detached_between_batches() -> sg.TrainingDebugger:
    """Truncated backpropagation through time, as it should be."""
    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    hidden: Tensor | None = None
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(80):
            x, y = signs()
            out, hidden = model(x, None if hidden is None else hidden.detach())
            optimizer.zero_grad()
            F.cross_entropy(out, y).backward()
            optimizer.step()
    return watch


@healthy()
def total_of_numbers() -> sg.TrainingDebugger:
    model, optimizer, x, y = classifier()
    total, mean, meter = 0.0, torch.zeros(()), Meter()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 60):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            mean = 0.9 * mean + 0.1 * loss.detach()
            meter.update(loss.detach(), len(xb))
    return watch


@healthy()
def micro_batches_summed_and_used_up() -> sg.TrainingDebugger:
    """Twelve losses are added up, then backward is called once."""
    model, optimizer, x, y = classifier()
    batches = data.batches(x, y, 12 * 30)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(30):
            total: Tensor | float = 0.0
            for _ in range(12):
                xb, yb = next(batches)
                total = total + F.cross_entropy(model(xb), yb) / 12
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
    return watch


@healthy()
def actor_waits_while_the_critic_steps() -> sg.TrainingDebugger:
    """The critic learns at every step of an episode; the actor's log-probabilities are summed until it ends."""
    actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
    of_actor = torch.optim.Adam(actor.parameters(), lr=1e-2)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-2)
    with sg.watch({"actor": actor, "critic": critic}, [of_actor, of_critic], sinks=[]) as watch:
        for episode in range(5):
            gain: Tensor | float = 0.0
            for _ in range(6 + 6 * episode):
                state = torch.randn(4)
                policy = torch.distributions.Categorical(logits=actor(state))
                action = policy.sample()
                reward = float(action == (state[0] > 0))
                value = critic(state).squeeze()
                of_critic.zero_grad()
                F.mse_loss(value, torch.tensor(reward)).backward()
                of_critic.step()
                gain = gain - policy.log_prob(action) * (reward - value.item())
            of_actor.zero_grad()
            (gain / 15).backward()
            of_actor.step()
    return watch


@healthy()
def actor_of_long_episodes() -> sg.TrainingDebugger:
    """The critic is trained on the actor's actions, without their history, forty times before the actor's own turn."""
    actor, critic = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), nn.Linear(6, 1)
    of_actor = torch.optim.Adam(actor.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-2)
    with sg.watch({"actor": actor, "critic": critic}, [of_actor, of_critic], sinks=[]) as watch:
        for _ in range(3):
            states = torch.randn(40, 16, 4)
            for state in states:
                action = actor(state).detach() + 0.1 * torch.randn(16, 2)
                reward = -(action - state[:, :2]).square().sum(1)
                of_critic.zero_grad()
                F.mse_loss(critic(torch.cat([state, action], 1)).squeeze(1), reward).backward()
                of_critic.step()
            of_actor.zero_grad()
            (-critic(torch.cat([states, actor(states)], 2)).mean()).backward()
            of_actor.step()
    return watch


@healthy()
def sequences_that_get_longer() -> sg.TrainingDebugger:
    """A curriculum: each step's graph is longer than the one before, and all of it is of that step."""
    cell, head = nn.GRUCell(4, 16), nn.Linear(16, 2)
    model = nn.ModuleList([cell, head])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for length in range(2, 42):
            x = torch.randn(16, length, 4)
            hidden = torch.zeros(16, 16)
            for at in range(length):
                hidden = cell(x[:, at], hidden)
            loss = F.cross_entropy(head(hidden), (x[:, -1].sum(1) > 0).long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def last_losses_as_tensors() -> sg.TrainingDebugger:
    """A window of the last twenty losses, whose mean is shown: they lie side by side, and there are never more."""
    model, optimizer, x, y = classifier()
    window: deque[Tensor] = deque(maxlen=20)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 60):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            window.append(loss)
            shown = torch.stack(list(window)).mean()
            assert shown.isfinite()
    return watch


@healthy()
def embedding_computed_once_for_all_steps() -> sg.TrainingDebugger:
    """A graph that is made before the loop and kept for all steps: it is old, and never longer."""
    x, y = data.blobs(200, 8, 2)
    scale = torch.ones(8, requires_grad=True)
    scaled = x * scale.exp()
    model = nn.Linear(8, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(60):
            at = torch.randint(0, 200, (32,))
            optimizer.zero_grad()
            F.cross_entropy(model(scaled[at]), y[at]).backward(retain_graph=True)
            optimizer.step()
    return watch


@healthy()
def unrolled_inner_steps() -> sg.TrainingDebugger:
    """Meta-learning: five inner steps with a graph of their own, used up by the outer one."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(40):
            task = torch.randn(4, 1)
            fast = dict(model.named_parameters())
            for _ in range(5):
                x = torch.randn(16, 4)
                inner = F.mse_loss(torch.func.functional_call(model, fast, (x,)), x @ task)
                found = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
                fast = {name: value - 0.1 * slope for (name, value), slope in zip(fast.items(), found, strict=True)}
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            F.mse_loss(torch.func.functional_call(model, fast, (x,)), x @ task).backward()
            optimizer.step()
    return watch


@healthy()
def short_window_through_time() -> sg.TrainingDebugger:
    """Each step looks back at the three before it, through a graph that is kept, and no further."""
    weight = nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.SGD(weight.parameters(), lr=1e-3)
    states: deque[Tensor] = deque(maxlen=3)
    with sg.watch(weight, optimizer, sinks=[]) as watch:
        for _ in range(50):
            x = torch.randn(16, 4)
            states.append(weight(x))
            optimizer.zero_grad()
            (torch.stack(list(states)).mean(0) - x.mean(0)).square().mean().backward(retain_graph=True)
            optimizer.step()
    return watch


@healthy()
def memory_that_fills_up_to_a_level() -> sg.TrainingDebugger:
    """A cache of features fills during the first epoch, and stays."""
    model, optimizer, x, y = classifier()
    cache: dict[int, Tensor] = {}
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step in range(200):
            at = step % 40
            batch = cache.setdefault(at, x[10 * at : 10 * at + 10].repeat(100, 1))
            optimizer.zero_grad()
            F.cross_entropy(model(batch), y[10 * at : 10 * at + 10].repeat(100)).backward()
            optimizer.step()
    return watch
