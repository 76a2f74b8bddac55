"""Sick: memory that grows step after step. The line that lets it grow ends in `# leaks: NAME`, the holder's name."""

from __future__ import annotations

import copy
import functools
import threading
from collections import defaultdict, deque

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import sick

STEPS = 120
SEEN: dict[int, Tensor] = {}


def parts(wide: int = 64) -> tuple[nn.Module, torch.optim.Optimizer, Tensor, Tensor]:
    x, y = data.blobs(512, 20, 4)
    model = mlp(20, wide, 4)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y


@sick("memory-leak")
def losses_with_graphs() -> sg.TrainingDebugger:
    """The classic: the loss goes into a list as it is."""
    model, optimizer, x, y = parts()
    history = []
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss)  # leaks: history
    return watch


@sick("memory-leak")
def losses_every_tenth_step() -> sg.TrainingDebugger:
    """Only now and then, and by epoch and kind: it keeps graphs all the same."""
    model, optimizer, x, y = parts()
    metrics: dict[str, list[Tensor]] = defaultdict(list)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 400)):
            output = model(xb)
            loss = F.cross_entropy(output, yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                metrics["loss"].append(loss)  # leaks: metrics['loss']
    return watch


class Remembers(nn.Module):
    """Keeps its hidden activations, for a plot that was never drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(20, 64), nn.Linear(64, 4)])
        self.cache: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.layers[0](x))
        self.cache.append(hidden.detach())  # leaks: model.cache
        return self.layers[1](hidden)


@sick("memory-leak")
def activations_in_the_module() -> sg.TrainingDebugger:
    """An attribute of the model, without graphs: nothing ever reads it."""
    _, _, x, y = parts()
    model = Remembers()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@sick("memory-leak")
def large_tensors_in_a_global_dict() -> sg.TrainingDebugger:
    """By bytes alone: a megabyte with each step, and it is read."""
    model, optimizer, x, y = parts()
    SEEN.clear()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, STEPS)):
            optimizer.zero_grad()
            output = model(xb)
            F.cross_entropy(output, yb).backward()
            optimizer.step()
            keep_features(step, output)
            SEEN.get(step - 1)
    SEEN.clear()
    return watch


def keep_features(step: int, output: Tensor) -> None:
    SEEN[step] = torch.randn(len(output), 8192)  # leaks: SEEN


@sick("memory-leak")
def outputs_from_a_forward_hook() -> sg.TrainingDebugger:
    """A hook that puts every output into a list of the function around it."""
    model, optimizer, x, y = parts()
    activations = []

    def hook(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        activations.append(output)  # leaks: activations

    model[0].register_forward_hook(hook)  # type: ignore[index]
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


def recorder():  # type: ignore[no-untyped-def]
    """A function that remembers: nobody else has a name for its list."""
    seen = []

    def record(output: Tensor) -> None:
        seen.append(output.square())  # leaks: seen

    return record


@sick("memory-leak")
def outputs_in_a_closure() -> sg.TrainingDebugger:
    model, optimizer, x, y = parts()
    record = recorder()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            optimizer.zero_grad()
            output = model(xb)
            F.cross_entropy(output, yb).backward()
            optimizer.step()
            record(output)
    return watch


@sick("memory-leak")
def a_hook_with_every_step() -> sg.TrainingDebugger:
    """Registered inside the loop, and never removed."""
    model, optimizer, x, y = parts()
    norms: deque[float] = deque(maxlen=10)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            model[0].register_forward_hook(lambda m, a, out: norms.append(out.norm().item()))  # leaks: model[0]
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@sick("memory-leak")
def copies_of_all_weights() -> sg.TrainingDebugger:
    """Checkpoints in memory: each a deep copy of the state, one every few steps."""
    model, optimizer, x, y = parts(wide=32768)
    checkpoints = []
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, STEPS)):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            if step % 2 == 0:
                checkpoints.append(copy.deepcopy(model.state_dict()))  # leaks: checkpoints
                assert checkpoints[-1]["0.weight"].shape == (32768, 20)
    return watch


def log(value: Tensor, history: list[Tensor] = []) -> int:  # noqa: B006
    history.append(value)  # leaks: history
    return len(history)


@sick("memory-leak")
def a_default_argument() -> sg.TrainingDebugger:
    model, optimizer, x, y = parts()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log(loss)
    log.__defaults__[0].clear()  # type: ignore[index]
    return watch


class Tracker:
    """What looks like each tracker's own list is the class's."""

    losses: list[Tensor] = []  # noqa: RUF012

    def track(self, loss: Tensor) -> None:
        self.losses.append(loss)  # leaks: Tracker.losses


@sick("memory-leak")
def an_attribute_of_a_class() -> sg.TrainingDebugger:
    model, optimizer, x, y = parts()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            loss = F.cross_entropy(model(xb), yb)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            Tracker().track(loss)
    Tracker.losses = []
    return watch


class Memory:
    """A replay memory that somebody forgot to bound."""

    def __init__(self) -> None:
        self.steps: deque[tuple[Tensor, Tensor]] = deque()

    def push(self, state: Tensor, value: Tensor) -> None:
        self.steps.append((state, value))  # leaks: memory.steps


@sick("memory-leak")
def an_unbounded_deque() -> sg.TrainingDebugger:
    model, optimizer, x, y = parts()
    memory = Memory()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            optimizer.zero_grad()
            output = model(xb)
            F.cross_entropy(output, yb).backward()
            optimizer.step()
            memory.push(xb, output.max(1).values)
    return watch


@sick("memory-leak")
def a_cache_by_tensors() -> sg.TrainingDebugger:
    """No tensor is found again, since each is equal only to itself."""
    model, optimizer, x, y = parts()

    @functools.cache  # leaks: augmented
    def augmented(batch: Tensor) -> Tensor:
        return batch + 0.01 * torch.randn_like(batch)

    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            optimizer.zero_grad()
            F.cross_entropy(model(augmented(xb)), yb).backward()
            optimizer.step()
    return watch


@sick("memory-leak")
def exceptions_with_tracebacks() -> sg.TrainingDebugger:
    """Each keeps the locals of where it was raised, the graph of the step among them."""
    model, optimizer, x, y = parts()
    errors = []

    def check(output: Tensor) -> None:
        worst = output.abs().max()
        if worst > 0:
            raise ValueError("an output that is not zero")

    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            optimizer.zero_grad()
            output = model(xb)
            F.cross_entropy(output, yb).backward()
            optimizer.step()
            try:
                check(output)
            except ValueError as error:
                errors.append(error)  # leaks: errors
    return watch


@sick("memory-leak")
def a_tensor_that_is_joined_to() -> sg.TrainingDebugger:
    """All features so far, in one tensor: no container at all."""
    model, optimizer, x, y = parts()
    features = torch.zeros(0, 4096)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            features = torch.cat([features, torch.randn(32, 4096)])  # leaks: features
    return watch


@sick("memory-leak")
def threads_that_never_end() -> sg.TrainingDebugger:
    model, optimizer, x, y = parts()
    over = threading.Event()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, STEPS):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            threading.Thread(target=over.wait, daemon=True).start()  # leaks: threads
    over.set()
    return watch


class Keeps(Dataset[tuple[Tensor, Tensor]]):
    """A dataset that remembers what it gave: in each worker anew, and nobody sees it."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y
        self.given: list[Tensor] = []

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        sample = self.x[at % len(self.x)]
        self.given.append(sample.repeat(1000))  # leaks: self.given
        return sample, self.y[at % len(self.x)]


@sick("memory-leak", slow=True)
def a_list_in_the_workers() -> sg.TrainingDebugger:
    model, optimizer, x, y = parts()
    # Spawned, not forked: a fork of a process that ran many tests has room of what they freed, and does not grow.
    loader = DataLoader(Keeps(x, y), batch_size=32, num_workers=1, multiprocessing_context="spawn")
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(loader):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            if step == 150:
                break
    return watch
