"""Healthy: memory that grows for a good reason, fills up and stops, or is let go of again."""

from __future__ import annotations

import copy
import functools
import random
from collections import defaultdict, deque

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import healthy

STEPS = 200


def parts(wide: int = 64) -> tuple[nn.Module, torch.optim.Optimizer, Tensor, Tensor]:
    x, y = data.blobs(512, 20, 4)
    model = mlp(20, wide, 4)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y


@healthy()
def replay_deque_that_fills() -> sg.TrainingDebugger:
    """A megabyte of experience with each step, bounded by the deque."""
    model, optimizer, x, y = parts()
    memory: deque[tuple[Tensor, Tensor]] = deque(maxlen=150)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            memory.append((torch.randn(256, 1024), yb))
            random.choice(memory)
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


class Buffer:
    """A ring in a list: it fills up, then old entries are written over."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.at = capacity, 0
        self.entries: list[Tensor] = []

    def push(self, entry: Tensor) -> None:
        if len(self.entries) < self.capacity:
            self.entries.append(entry)
        else:
            self.entries[self.at] = entry
        self.at = (self.at + 1) % self.capacity


@healthy()
def replay_ring_that_fills() -> sg.TrainingDebugger:
    model, optimizer, x, y = parts()
    buffer = Buffer(100_000)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            buffer.push(torch.randn(256, 512))
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def replay_list_with_pops() -> sg.TrainingDebugger:
    model, optimizer, x, y = parts()
    memory: list[Tensor] = []
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            memory.append(torch.randn(256, 512))
            if len(memory) > 5_000:
                memory.pop(0)
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def histories_of_numbers() -> sg.TrainingDebugger:
    """Everything that people log: floats, strings, dicts of them, detached losses."""
    model, optimizer, x, y = parts()
    losses: list[float] = []
    rows: list[dict[str, object]] = []
    log: dict[str, list[float]] = defaultdict(list)
    tensors: list[Tensor] = []
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 500)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            log["loss"].append(loss.item())
            log["rate"].append(optimizer.param_groups[0]["lr"])
            rows.append({"step": step, "loss": loss.item(), "phase": "train", "note": f"step {step}"})
            tensors.append(loss.detach())
    assert torch.stack(tensors).isfinite().all()
    return watch


@healthy()
def losses_of_one_epoch() -> sg.TrainingDebugger:
    """Losses with their graphs, but only until the epoch is over."""
    model, optimizer, x, y = parts()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(5):
            losses = []
            for xb, yb in data.batches(x, y, 60):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(xb), yb)
                loss.backward()
                optimizer.step()
                losses.append(loss)
            assert torch.stack(losses).mean() > 0
    return watch


def one_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> float:
    losses = []
    for xb, yb in data.batches(x, y, 60):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(xb), yb)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return torch.stack(losses).mean().item()


@healthy()
def losses_of_one_call() -> sg.TrainingDebugger:
    """The same in a function of its own, whose locals go with it."""
    model, optimizer, x, y = parts()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(5):
            one_epoch(model, optimizer, x, y)
    return watch


class Cached(Dataset[tuple[Tensor, Tensor]]):
    """Reads each picture once, and keeps it: half a megabyte each."""

    def __init__(self, y: Tensor) -> None:
        self.y = y
        self.cache: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        if at not in self.cache:
            self.cache[at] = torch.randn(16, 16).repeat(16, 32)
        return self.cache[at][0, :20], self.y[at]


@healthy()
def samples_cached_in_the_first_epoch() -> sg.TrainingDebugger:
    model, optimizer, _, y = parts()
    loader = DataLoader(Cached(y), batch_size=8, shuffle=True)
    with sg.watch(model, optimizer, sinks=[], ignore=["shuffled-labels", "loss-plateau"]) as watch:
        for _ in range(3):
            for xb, yb in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
    return watch


@healthy()
def a_cache_by_number() -> sg.TrainingDebugger:
    """Positions by sequence length, computed once for each."""

    @functools.cache
    def positions(length: int) -> Tensor:
        return torch.arange(length * 2048).float().reshape(length, 2048)

    model, optimizer, x, y = parts()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, STEPS)):
            positions(1 + step * 37 % 101)
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def validation_outputs_by_epoch() -> sg.TrainingDebugger:
    """All outputs of the validation data, gathered anew at each epoch."""
    model, optimizer, x, y = parts()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(6):
            model.train()
            for xb, yb in data.batches(x, y, 30):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
            model.eval()
            outputs, targets = [], []
            with torch.no_grad():
                for xb, yb in data.batches(x, y, 30):
                    outputs.append(model(xb).repeat(1, 500))
                    targets.append(yb)
            assert (torch.cat(outputs)[:, :4].argmax(1) == torch.cat(targets)).float().mean() > 0.1
    return watch


@healthy()
def the_best_weights_so_far() -> sg.TrainingDebugger:
    """A copy of all weights, replaced whenever there is a better one; an average of them beside it."""
    model, optimizer, x, y = parts(wide=2048)
    average = copy.deepcopy(model)
    best, lowest = copy.deepcopy(model.state_dict()), float("inf")
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                    mean.lerp_(weight, 0.01)
            if loss.item() < lowest:
                best, lowest = copy.deepcopy(model.state_dict()), loss.item()
    assert best
    return watch


@healthy()
def episodes_of_any_length() -> sg.TrainingDebugger:
    """REINFORCE: log-probabilities with graphs pile up over an episode, and are cleared after its step."""
    model = mlp(4, 32, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    saved: list[Tensor] = []
    rewards: list[float] = []
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(80):
            state = torch.randn(4)
            for _ in range(random.randint(5, 25)):
                chances = torch.distributions.Categorical(logits=model(state))
                action = chances.sample()
                saved.append(chances.log_prob(action))
                rewards.append(float(action == (state[0] > 0)) + random.gauss(0, 1))
                state = torch.randn(4)
            returns = torch.tensor(rewards) - sum(rewards) / len(rewards)
            optimizer.zero_grad()
            (-torch.stack(saved) * returns).mean().backward()
            optimizer.step()
            del saved[:], rewards[:]
    return watch


@healthy()
def a_history_that_is_cut() -> sg.TrainingDebugger:
    model, optimizer, x, y = parts()
    recent: list[Tensor] = []
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            optimizer.zero_grad()
            output = model(xb)
            F.cross_entropy(output, yb).backward()
            optimizer.step()
            recent.append(torch.randn(32, 4096))
            recent = recent[-2000:]
    return watch


@healthy()
def sequences_of_any_length() -> sg.TrainingDebugger:
    """What a step needs goes up and down by a factor of fifty."""
    tokens, kinds = data.text()
    model = nn.Sequential(nn.Embedding(kinds, 32), nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, kinds))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(150):
            length = random.randint(8, 400)
            piece, target = data.windows(tokens, length, 8)
            optimizer.zero_grad()
            F.cross_entropy(model(piece).flatten(0, 1), target.flatten()).backward()
            optimizer.step()
    return watch


@healthy()
def small_outputs_for_a_table() -> sg.TrainingDebugger:
    """Predictions of every step, small ones, put together when the run is over."""
    model, optimizer, x, y = parts()
    predictions, targets = [], []
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            optimizer.zero_grad()
            output = model(xb)
            F.cross_entropy(output, yb).backward()
            optimizer.step()
            predictions.append(output.argmax(1))
            targets.append(yb)
    assert torch.cat(predictions).shape == torch.cat(targets).shape
    return watch


@healthy()
def batches_known_from_before() -> sg.TrainingDebugger:
    """A list of references to tensors that are there anyway takes no memory."""
    model, optimizer, *_ = parts()
    batches = [(torch.randn(32, 20), torch.randint(0, 4, (32,)), torch.randn(256, 512)) for _ in range(60)]
    order = []
    with sg.watch(model, optimizer, sinks=[], ignore=["shuffled-labels", "loss-plateau", "repeated-batch"]) as watch:
        for step in range(STEPS):
            xb, yb, extra = batches[step % len(batches)]
            order.append(extra)
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    assert len(order) == STEPS
    return watch
