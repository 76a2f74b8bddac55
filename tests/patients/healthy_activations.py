"""Healthy: units at rest, gates that are shut, certain outputs, heads that start at zero."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.register import healthy


@healthy()
def half_the_units_at_rest() -> sg.TrainingDebugger:
    """One input between 0 and 1: a third to a half of the ReLUs never fire, and it learns."""
    x = torch.rand(512, 1)
    model = mlp(1, 64, 64, 1)
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), x, torch.sin(6 * x), 200)


@healthy()
def narrow_net_on_four_points() -> sg.TrainingDebugger:
    """XOR with eight ReLUs: four samples, again and again."""
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    model = mlp(2, 16, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(300):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    return watch


class SqueezeExcite(nn.Module):
    """A convolution whose channels are weighed by a bottleneck of four ReLUs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 16, 3), nn.Linear(16, 10)
        self.gate = nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 16), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x))
        x = x * self.gate(x.mean((2, 3)))[:, :, None, None]
        return self.head(x.mean((2, 3)))


@healthy()
def squeeze_and_excitation() -> sg.TrainingDebugger:
    model = SqueezeExcite()
    nn.init.constant_(model.gate[0].bias, -3.0)
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), *data.images(), 120)


class Highway(nn.Module):
    """Gates that start shut (a bias of -6), as the paper has it: the input is carried along."""

    def __init__(self) -> None:
        super().__init__()
        self.change = nn.ModuleList(nn.Linear(20, 20) for _ in range(4))
        self.gate = nn.ModuleList(nn.Linear(20, 20) for _ in range(4))
        self.head = nn.Linear(20, 4)
        for gate in self.gate:
            nn.init.normal_(gate.weight, std=0.01)
            nn.init.constant_(gate.bias, -6.0)

    def forward(self, x: Tensor) -> Tensor:
        for change, gate in zip(self.change, self.gate, strict=True):
            share = torch.sigmoid(gate(x))
            x = share * F.relu(change(x)) + (1 - share) * x
        return self.head(x)


@healthy()
def highway_gates_start_shut() -> sg.TrainingDebugger:
    model = Highway()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), *data.blobs(), 120)


@healthy()
def certain_classifier() -> sg.TrainingDebugger:
    """Two classes far apart, trained until the sigmoid is 0 or 1: that is success. So are tanh units that decide."""
    x, y = data.blobs(512, 10, 2, spread=0.3)
    model = nn.Sequential(mlp(10, 32, 32, 1, activation=nn.Tanh), nn.Sigmoid(), nn.Flatten(0))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 400):
            optimizer.zero_grad()
            F.binary_cross_entropy(model(xb), yb.float()).backward()
            optimizer.step()
    return watch


class Cell(nn.Module):
    """An LSTM written out."""

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.head = nn.Linear(1 + 16, 64), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(len(x), 16)
        for t in range(x.shape[1]):
            i, f, g, o = self.gates(torch.cat([x[:, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f + 6.0) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


@healthy()
def cell_that_remembers() -> sg.TrainingDebugger:
    """The forget gate starts open, at 0.997."""
    x = torch.randn(256, 12, 1)
    model = Cell()
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), x, x.mean(1), 80)


@healthy()
def rare_class_prior() -> sg.TrainingDebugger:
    """The last layer starts at zero with the log odds of a rare class as its bias, and a slow warm-up."""
    x, y = data.blobs(2048, 10, 2)
    rare = (y * (torch.rand(2048) < 0.05)).float().unsqueeze(1)
    model = mlp(10, 32, 1)
    nn.init.zeros_(model[2].weight)
    nn.init.constant_(model[2].bias, -4.6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 1000))
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, rare, 100):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(xb), yb).backward()
            optimizer.step()
            schedule.step()
    return watch


@healthy()
def one_fixed_input() -> sg.TrainingDebugger:
    """A picture is drawn from one code, eight times the same: all outputs are alike, as they should."""
    code = torch.randn(1, 16).expand(8, 16)
    picture = torch.rand(1, 64).expand(8, 64)
    model = mlp(16, 64, 64)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(100):
            optimizer.zero_grad()
            F.mse_loss(model(code), picture).backward()
            optimizer.step()
    return watch


class Gaussian(nn.Module):
    """A policy: the mean depends on the state, the spread does not."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log_std = mlp(6, 32, 2), nn.Parameter(torch.zeros(2))

    def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.mean(state)
        return mean, self.log_std.exp().expand_as(mean)


@healthy()
def policy_with_one_spread() -> sg.TrainingDebugger:
    model = Gaussian()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(150):
            state = torch.randn(64, 6)
            policy = torch.distributions.Normal(*model(state))
            action = policy.sample()
            reward = -(action - state[:, :2]).square().sum(1)
            optimizer.zero_grad()
            (-(policy.log_prob(action).sum(1) * (reward - reward.mean())).mean()).backward()
            optimizer.step()
    return watch


@healthy()
def counts_behind_a_relu() -> sg.TrainingDebugger:
    """Words of a document: most targets are zero, some words never come, the output is a ReLU."""
    topics = torch.rand(5, 200) * (torch.rand(5, 200) < 0.1)
    mix = torch.rand(512, 5)
    counts = torch.poisson(4 * mix @ topics)
    model = nn.Sequential(mlp(200, 64, 200), nn.ReLU())
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), counts, counts, 150)


class Routed(nn.Module):
    """Each sample goes to one of eight experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(20, 8)
        self.experts = nn.ModuleList(mlp(20, 32, 4) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        gates = F.softmax(self.router(x), 1)
        best, which = gates.max(1)
        out = x.new_zeros(len(x), 4)
        for number, expert in enumerate(self.experts):
            mine = which == number
            if mine.any():
                out = out.index_put((mine.nonzero()[:, 0],), expert(x[mine]) * best[mine, None])
        return out


@healthy()
def experts_in_turn() -> sg.TrainingDebugger:
    model = Routed()
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), *data.blobs(), 120)


class Pooled(nn.Module):
    """Attention over the instances of a bag, which may be a single one."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.score, self.head = mlp(8, 32, 32), nn.Linear(32, 1), nn.Linear(32, 2)

    def forward(self, bag: Tensor) -> Tensor:
        h = torch.tanh(self.body(bag))
        return self.head((torch.softmax(self.score(h), 1) * h).sum(1))


@healthy()
def bags_of_one() -> sg.TrainingDebugger:
    x, y = data.blobs(512, 8, 2)
    model = Pooled()
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), x.unsqueeze(1), y, 100)


class Ranker(nn.Module):
    """The hinge is part of the model, and zero once everything is in order."""

    def __init__(self) -> None:
        super().__init__()
        self.score = mlp(10, 32, 1)

    def forward(self, better: Tensor, worse: Tensor) -> Tensor:
        return F.relu(1.0 - self.score(better) + self.score(worse)).mean()


@healthy()
def hinge_inside_the_model() -> sg.TrainingDebugger:
    model = Ranker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(200):
            x = torch.randn(32, 10)
            optimizer.zero_grad()
            model(x + 1.5, x - 1.5).backward()
            optimizer.step()
    return watch


@healthy()
def one_hot_words() -> sg.TrainingDebugger:
    """A thousand words as one-hot vectors, a few of them a batch, into a ReLU layer."""
    words = torch.randint(0, 1000, (2048,)).square() // 1000
    model = mlp(1000, 128, 4)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2), F.one_hot(words, 1000).float(), words % 4, 150)


@healthy()
def sparse_code() -> sg.TrainingDebugger:
    """Four times as many codes as inputs, kept sparse by an L1 penalty."""
    x = torch.randn(1024, 40) @ torch.randn(40, 32) / 6
    encode, decode = nn.Linear(32, 128), nn.Linear(128, 32)
    optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()], lr=1e-3)
    with sg.watch(nn.ModuleList([encode, decode]), optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 300):
            code = F.relu(encode(xb))
            optimizer.zero_grad()
            (F.mse_loss(decode(code), xb) + 0.01 * code.abs().mean()).backward()
            optimizer.step()
    return watch


@healthy()
def mobile_blocks() -> sg.TrainingDebugger:
    """Depthwise convolutions with batch norm and ReLU6 in place."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU6(inplace=True),
        nn.Conv2d(16, 16, 3, groups=16), nn.BatchNorm2d(16), nn.ReLU6(inplace=True),
        nn.Conv2d(16, 32, 1), nn.BatchNorm2d(32), nn.Hardswish(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), *data.images(), 100)
