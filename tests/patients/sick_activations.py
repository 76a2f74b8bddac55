"""Sick: units that never fire, activations stuck at their bounds, outputs that do not depend on the input."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.register import sick


class FunctionalNet(nn.Module):
    """The tutorial's convnet: pooling and ReLU as functions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 32, 3)
        self.fc1, self.fc2 = nn.Linear(32, 64), nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


@sick("lr-too-high")
def rate_kills_all_relus() -> sg.TrainingDebugger:
    """Adam at 0.5: within a few updates no hidden unit fires any more, and the loss stays flat ever after."""
    model = FunctionalNet()
    return fit(model, torch.optim.Adam(model.parameters(), lr=0.5), *data.images(), 400)


@sick("lr-too-high")
def momentum_kills_relus() -> sg.TrainingDebugger:
    """SGD at 1.0 with momentum: the loss survives it, the second convolution does not."""
    model = FunctionalNet()
    return fit(model, torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9), *data.images(), 200)


@sick("lr-too-high", "lr-jump")
def rate_kills_a_trained_net() -> sg.TrainingDebugger:
    """It learns for 100 steps; then a hand-written schedule sets the rate to 20."""
    model = FunctionalNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (x, y) in enumerate(data.batches(*data.images(), 400)):
            if step == 100:
                optimizer.param_groups[0]["lr"] = 20.0
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return watch


@sick("dead-units")
def biases_far_below_zero() -> sg.TrainingDebugger:
    """Hidden biases start at -10: no unit ever fires."""
    model = mlp(20, 64, 64, 4)
    nn.init.constant_(model[2].bias, -10.0)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), *data.blobs(), 60)


@sick("dead-units")
def most_channels_dead() -> sg.TrainingDebugger:
    """A convolution whose biases start below zero: a few channels are left."""
    model = FunctionalNet()
    nn.init.constant_(model.conv2.bias, -0.9)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-4), *data.images(noise=0.2), 60)


@sick("dead-units")
def inputs_of_one_sign() -> sg.TrainingDebugger:
    """Weights are kept positive, features are counts turned negative: the first layer only sees negative sums."""
    x, y = data.regression(512, 12)
    model = mlp(12, 48, 1)
    with torch.no_grad():
        model[0].weight.abs_()
        model[0].bias.zero_()
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.01), -x.abs() - 0.1, y, 80)


@sick("dead-units", "output-range")
def relu_behind_the_last_layer() -> sg.TrainingDebugger:
    """Returns are negative, the network ends in a ReLU."""
    x, y = data.regression(512, 10)
    model = nn.Sequential(mlp(10, 32, 1), nn.ReLU())
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2), x, y - 5.0, 100)


@sick("saturated-units", "unnormalized-input")
def tanh_on_raw_pixels() -> sg.TrainingDebugger:
    """Pixels from 0 to 255 into a tanh network."""
    x, y = data.images(512, 4, size=8)
    pixels = (x.flatten(1) * 50.0 + 128.0).clamp(0, 255).round()
    model = mlp(64, 64, 64, 4, activation=nn.Tanh)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.01), pixels, y, 60)


@sick("saturated-units", "bad-initialization")
def sigmoids_with_large_weights() -> sg.TrainingDebugger:
    """`torch.randn` times five for a sigmoid layer of 100 inputs."""
    model = mlp(20, 100, 100, 4, activation=nn.Sigmoid)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=5.0)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.1), *data.blobs(), 60)


class TanhRegressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(10, 64), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.hidden(x)))


@sick("saturated-units", "lr-too-high", "unnormalized-input")
def features_never_scaled() -> sg.TrainingDebugger:
    """A year and a salary among the features: tanh as a function, stuck from the first step on."""
    x, y = data.regression(512, 10)
    x[:, 0] = 2000.0 + 10.0 * x[:, 0]
    x[:, 1] = 50_000.0 + 9_000.0 * x[:, 1]
    model = TanhRegressor()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y, 60)


@sick("constant-output")
def softmax_over_one_output() -> sg.TrainingDebugger:
    """Two classes, one output, softmax instead of sigmoid: always 1."""
    x, y = data.blobs(512, 10, 2)
    model = nn.Sequential(mlp(10, 32, 1), nn.Softmax(dim=1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            optimizer.zero_grad()
            F.binary_cross_entropy(model(xb).squeeze(1).clamp(1e-6, 1 - 1e-6), yb.float()).backward()
            optimizer.step()
    return watch


@sick("constant-output", "label-out-of-range")
def cross_entropy_of_one_output() -> sg.TrainingDebugger:
    """One output and `CrossEntropyLoss`: labels were made to fit, and the loss is 0 from the start."""
    x, y = data.blobs(512, 10, 2)
    model = mlp(10, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 30):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), torch.zeros_like(yb)).backward()
            optimizer.step()
    return watch


class OneFeatureNorm(nn.Module):
    """A norm over a single feature: it is zero whatever goes in."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.body = nn.LayerNorm(1), mlp(1, 32, 32, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.norm(x))


@sick("constant-output")
def norm_over_a_single_feature() -> sg.TrainingDebugger:
    x = torch.linspace(-3, 3, 256).unsqueeze(1)
    model = OneFeatureNorm()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2), x, torch.sin(x), 80)


@sick("constant-output", "bad-initialization")
def everything_starts_at_zero() -> sg.TrainingDebugger:
    model = mlp(10, 32, 32, 3)
    for p in model.parameters():
        nn.init.zeros_(p)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.1), *data.blobs(512, 10, 3), 40)
