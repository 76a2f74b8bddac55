"""Sick: parameters that are not reached, not held, not registered, or not what was meant."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import sick


class Classifier(nn.Module):
    """A backbone and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.backbone(x))


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 40) -> sg.TrainingDebugger:
    x, y = data.blobs(256, 8, 3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, steps):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


# -- detached-loss -----------------------------------------------------------------------------------------------------


@sick("detached-loss")
def loss_made_anew() -> sg.TrainingDebugger:
    """The loss is wrapped in a new tensor, for the error to go away."""
    x, y = data.blobs(256, 8, 3)
    model = mlp(8, 32, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            loss = torch.tensor(F.cross_entropy(model(xb), yb).item(), requires_grad=True)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@sick("detached-loss")
def trained_without_gradients() -> sg.TrainingDebugger:
    """The evaluation's `no_grad` went into the training step."""
    x, y = data.blobs(256, 8, 3)
    model = mlp(8, 32, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 20):
            with torch.no_grad():
                logits = model(xb)
            loss = F.cross_entropy(logits, yb)
            loss.requires_grad_()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@sick("detached-loss")
def error_of_predicted_classes() -> sg.TrainingDebugger:
    """The classes themselves are compared, which are no function that could be derived."""
    x, y = data.blobs(256, 8, 3)
    model = mlp(8, 32, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 30):
            predicted = model(xb).argmax(1).float().requires_grad_()
            optimizer.zero_grad()
            F.mse_loss(predicted, yb.float()).backward()
            optimizer.step()
    return watch


# -- missing-gradient --------------------------------------------------------------------------------------------------


@sick("missing-gradient")
def detached_features() -> sg.TrainingDebugger:
    class Net(Classifier):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(F.relu(self.backbone(x)).detach())

    model = Net()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2))


@sick("missing-gradient")
def features_by_numpy() -> sg.TrainingDebugger:
    """Two models; the first one's output takes a way through NumPy."""
    x, y = data.blobs(256, 8, 3)
    encoder, head = mlp(8, 32, 16), nn.Linear(16, 3)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-2)
    with sg.watch({"encoder": encoder, "head": head}, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            features = torch.tensor(encoder(xb).detach().numpy())
            optimizer.zero_grad()
            F.cross_entropy(head(features), yb).backward()
            optimizer.step()
    return watch


@sick("missing-gradient")
def generator_on_detached_fakes() -> sg.TrainingDebugger:
    """The fakes were detached for the discriminator, and used for the generator's loss, too."""
    generator, critic = mlp(4, 16, 8), mlp(8, 16, 1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    with sg.watch({"G": generator, "D": critic}, [of_generator, of_critic], sinks=[]) as watch:
        for _ in range(40):
            fake, real = generator(torch.randn(32, 4)).detach(), torch.randn(32, 8) + 2
            of_critic.zero_grad()
            (F.softplus(critic(fake)).mean() + F.softplus(-critic(real)).mean()).backward()
            of_critic.step()
            of_generator.zero_grad()
            F.softplus(-critic(fake)).mean().backward()
            of_generator.step()
    return watch


@sick("missing-gradient")
def tokens_by_argmax() -> sg.TrainingDebugger:
    """The first network chooses tokens, the second reads them: no gradient gets through the choice."""

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.writer = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 10))
            self.words = nn.Embedding(10, 16)
            self.reader = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.reader(self.words(self.writer(x).argmax(1)))

    model = Chain()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2))


# -- unused-parameter --------------------------------------------------------------------------------------------------


@sick("unused-parameter")
def forgotten_layer() -> sg.TrainingDebugger:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.third(F.relu(self.first(x)))

    model = Net()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2))


@sick("unused-parameter")
def forgotten_block() -> sg.TrainingDebugger:
    """A convolution block that `forward` passes by, for its channels fit either way."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv1d(1, 16, 3, padding=1)
            self.block = nn.Sequential(nn.Conv1d(16, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU())
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(F.relu(self.stem(x.unsqueeze(1))).mean(2))

    model = Net()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2))


# -- unoptimized-parameter ---------------------------------------------------------------------------------------------


@sick("unoptimized-parameter")
def head_after_the_optimizer() -> sg.TrainingDebugger:
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.head = nn.Linear(32, 3)
    return fit(model, optimizer)


@sick("unoptimized-parameter")
def optimizer_of_a_copy() -> sg.TrainingDebugger:
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return fit(copy.deepcopy(model), optimizer)


@sick("unoptimized-parameter")
def unfrozen_but_not_added() -> sg.TrainingDebugger:
    """The backbone is unfrozen after a while; the optimizer was built from what needed gradients before."""
    x, y = data.blobs(256, 8, 3)
    model = Classifier()
    model.backbone.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 60)):
            if step == 15:
                model.backbone.requires_grad_(True)
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


# -- unregistered-parameter --------------------------------------------------------------------------------------------


@sick("unregistered-parameter")
def layers_in_a_list() -> sg.TrainingDebugger:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 32), nn.Linear(32, 3)
            self.layers = [nn.Linear(32, 32) for _ in range(3)]

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.first(x))
            for layer in self.layers:
                x = F.relu(layer(x))
            return self.last(x)

    model = Net()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2))


@sick("unregistered-parameter")
def layer_made_in_forward() -> sg.TrainingDebugger:
    class Net(Classifier):
        def forward(self, x: Tensor) -> Tensor:
            features = self.backbone(x)
            return self.head(F.relu(nn.Linear(features.shape[1], 32)(features)))

    model = Net()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2))


@sick("unregistered-parameter")
def scale_as_a_tensor() -> sg.TrainingDebugger:
    class Net(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.ones(32, requires_grad=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.backbone(x) * self.scale)

    model = Net()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2))


# -- frozen-parameter --------------------------------------------------------------------------------------------------


@sick("frozen-parameter")
def rounded_predictions() -> sg.TrainingDebugger:
    x = torch.randn(256, 8)
    y = (3 * x[:, :1]).round()
    model = mlp(8, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            optimizer.zero_grad()
            F.mse_loss(torch.round(model(xb)), yb).backward()
            optimizer.step()
    return watch


@sick("frozen-parameter")
def hard_codes() -> sg.TrainingDebugger:
    """Binary codes without a straight-through estimator: the encoder stays as it is, the decoder learns."""

    class Codes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = mlp(8, 32, 16), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.decoder(torch.sign(self.encoder(x)))

    model = Codes()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2))


@sick("frozen-parameter")
def loaded_at_every_step() -> sg.TrainingDebugger:
    """The checkpoint is loaded inside the loop."""
    x, y = data.blobs(256, 8, 3)
    model = Classifier()
    checkpoint = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            model.load_state_dict(checkpoint)
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


# -- ineffective-freeze ------------------------------------------------------------------------------------------------


@sick("ineffective-freeze")
def frozen_by_assignment() -> sg.TrainingDebugger:
    model = Classifier()
    model.backbone.requires_grad = False  # type: ignore[assignment]
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3))


@sick("ineffective-freeze")
def frozen_with_a_typing_error() -> sg.TrainingDebugger:
    model = Classifier()
    for parameter in model.backbone.parameters():
        parameter.require_grad = False  # type: ignore[attr-defined]
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3))


@sick("ineffective-freeze")
def frozen_with_its_gradient() -> sg.TrainingDebugger:
    """Frozen in the middle of the run; gradients are set to zero, not to None, and momentum goes on."""
    x, y = data.blobs(256, 8, 3)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 40)):
            if step == 10:
                model.backbone.requires_grad_(False)
            optimizer.zero_grad(set_to_none=False)
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch
