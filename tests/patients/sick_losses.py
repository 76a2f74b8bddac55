"""Sick: what goes into the loss is not what it wants."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.register import sick

Loss = Callable[[Tensor, Tensor], Tensor]


def fit(
    model: nn.Module, x: Tensor, y: Tensor, loss_fn: Loss, *, steps: int = 40, lr: float = 1e-3
) -> sg.TrainingDebugger:
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    with sg.watch(model, optimizer, sinks=[]) as watch, suppress(IndexError, RuntimeError):
        for xb, yb in data.batches(x, y, steps):
            optimizer.zero_grad()
            loss_fn(model(xb), yb).backward()
            optimizer.step()
    return watch


def mlp(inputs: int, outputs: int, *last: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs), *last)


# -- double-softmax ------------------------------------------------------------------------------------------------


@sick("double-softmax")
def softmax_before_cross_entropy() -> sg.TrainingDebugger:
    x, y = data.blobs()
    return fit(mlp(20, 4, nn.Softmax(dim=1)), x, y, nn.CrossEntropyLoss())


class _Tagger(nn.Module):
    """Softmax in the model's last line, and a view between it and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(12, 16), nn.GRU(16, 24, batch_first=True), nn.Linear(24, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.softmax(self.out(self.rnn(self.embed(tokens))[0]), dim=-1)


@sick("double-softmax")
def softmax_in_a_tagger() -> sg.TrainingDebugger:
    tokens = torch.randint(0, 12, (256, 10))
    return fit(_Tagger(), tokens, tokens % 5, lambda out, y: F.cross_entropy(out.view(-1, 5), y.view(-1)))


@sick("double-softmax")
def sigmoid_before_bce_with_logits() -> sg.TrainingDebugger:
    x, y = data.blobs(400, 5, 2)
    return fit(mlp(5, 1, nn.Sigmoid()), x, y.float(), lambda out, y: nn.BCEWithLogitsLoss()(out.squeeze(1), y))


@sick("double-softmax")
def softmax_by_hand_before_cross_entropy() -> sg.TrainingDebugger:
    def loss(out: Tensor, y: Tensor) -> Tensor:
        weights = torch.exp(out - out.max(dim=1, keepdim=True).values)
        return F.cross_entropy(weights / weights.sum(dim=1, keepdim=True), y)

    x, y = data.blobs()
    return fit(mlp(20, 4), x, y, loss)


# -- loss-input-mismatch -------------------------------------------------------------------------------------------


@sick("loss-input-mismatch")
def nll_of_logits() -> sg.TrainingDebugger:
    x, y = data.blobs()
    return fit(mlp(20, 4), x, y, nn.NLLLoss())


@sick("loss-input-mismatch")
def nll_of_probabilities() -> sg.TrainingDebugger:
    x, y = data.blobs()
    return fit(mlp(20, 4, nn.Softmax(dim=1)), x, y, nn.NLLLoss())


@sick("loss-input-mismatch")
def sigmoid_before_cross_entropy() -> sg.TrainingDebugger:
    x, y = data.blobs()
    return fit(mlp(20, 4, nn.Sigmoid()), x, y, nn.CrossEntropyLoss())


@sick("loss-input-mismatch")
def relu_after_the_last_layer() -> sg.TrainingDebugger:
    """As the quickstart tutorial had it once."""
    x, y = data.blobs()
    return fit(mlp(20, 4, nn.ReLU()), x, y, nn.CrossEntropyLoss())


@sick("loss-input-mismatch")
def distillation_without_the_logarithm() -> sg.TrainingDebugger:
    x, _ = data.blobs()
    teacher = mlp(20, 4)
    with torch.no_grad():
        y = teacher(x).softmax(dim=1)
    return fit(mlp(20, 4), x, y, lambda out, y: F.kl_div(out.softmax(dim=1), y, reduction="batchmean"))


@sick("loss-input-mismatch", "constant-output")
def cross_entropy_of_one_column() -> sg.TrainingDebugger:
    x, y = data.blobs(400, 5, 2)
    return fit(mlp(5, 1), x, y.float().unsqueeze(1), nn.CrossEntropyLoss())


@sick("loss-input-mismatch")
def bce_of_logits() -> sg.TrainingDebugger:
    """Raises at the first step."""
    x, y = data.blobs(400, 5, 2)
    return fit(mlp(5, 1), x, y.float().unsqueeze(1), nn.BCELoss())


# -- broadcast-loss ------------------------------------------------------------------------------------------------


@sick("broadcast-loss")
def target_without_a_column() -> sg.TrainingDebugger:
    x, y = data.regression()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        return ((out - y.squeeze(1)) ** 2).mean()

    return fit(mlp(10, 1), x, y, loss)


@sick("broadcast-loss")
def target_with_a_column_too_many() -> sg.TrainingDebugger:
    """torch warns of it, once."""
    x, y = data.regression()
    return fit(mlp(10, 1, nn.Flatten(0)), x, y, nn.SmoothL1Loss())


@sick("broadcast-loss")
def weights_of_another_shape() -> sg.TrainingDebugger:
    """A policy gradient: log-probabilities of (N), advantages of (N, 1)."""
    x, advantage = data.regression()

    def loss(out: Tensor, advantage: Tensor) -> Tensor:
        log_probabilities = torch.distributions.Categorical(logits=out).log_prob(out.argmax(1))
        return -(log_probabilities * advantage).mean()

    return fit(mlp(10, 3), x, advantage, loss)


# -- missing-activation --------------------------------------------------------------------------------------------


@sick("missing-activation")
def only_linear_layers() -> sg.TrainingDebugger:
    x, y = data.spirals()
    return fit(nn.Sequential(nn.Linear(2, 64), nn.Linear(64, 64), nn.Linear(64, 2)), x, y, nn.CrossEntropyLoss())


class _Forgotten(nn.Module):
    """The activations are made and not called."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.pool, self.relu = nn.BatchNorm2d(8), nn.AvgPool2d(2), nn.ReLU()
        self.fc = nn.Linear(8 * 36, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pool(self.norm(self.conv2(self.conv1(x)))).flatten(1))


@sick("missing-activation")
def convolutions_without_activations() -> sg.TrainingDebugger:
    x, y = data.images()
    return fit(_Forgotten(), x, y, nn.CrossEntropyLoss(), steps=20)


@sick("missing-activation")
def a_head_without_activations() -> sg.TrainingDebugger:
    """The convolutions have theirs; the three layers of the classifier have none."""
    x, y = data.images()
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(200, 64), nn.Dropout(0.2), nn.Linear(64, 32), nn.Linear(32, 10)),
    )
    return fit(model, x, y, nn.CrossEntropyLoss(), steps=20)


# -- label-out-of-range --------------------------------------------------------------------------------------------


@sick("label-out-of-range")
def labels_from_one() -> sg.TrainingDebugger:
    x, y = data.blobs()
    return fit(mlp(20, 4), x, y + 1, nn.CrossEntropyLoss())


@sick("label-out-of-range")
def labels_of_minus_one() -> sg.TrainingDebugger:
    x, y = data.blobs(400, 5, 2)
    return fit(mlp(5, 1), x, 2.0 * y.unsqueeze(1) - 1.0, nn.BCEWithLogitsLoss())


@sick("label-out-of-range")
def autoencoder_of_standardised_images() -> sg.TrainingDebugger:
    x, _ = data.images()
    x = x.flatten(1)
    return fit(mlp(144, 144, nn.Sigmoid()), x, x, nn.BCELoss())


@sick("label-out-of-range")
def a_mask_among_the_labels() -> sg.TrainingDebugger:
    """255 marks the border, and nobody tells the loss; it comes up late."""
    x, y = data.images(256, 4, 8)
    y = y[:, None, None].expand(-1, 8, 8).clone()
    y[200, 0, 0] = 255
    return fit(nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1)), x, y, nn.CrossEntropyLoss())


# -- output-range --------------------------------------------------------------------------------------------------


@sick("output-range")
def sigmoid_for_standardised_targets() -> sg.TrainingDebugger:
    x, y = data.regression()
    return fit(mlp(10, 1, nn.Sigmoid()), x, y / y.std(), nn.MSELoss())


@sick("output-range")
def relu_for_signed_targets() -> sg.TrainingDebugger:
    x, y = data.regression()
    return fit(mlp(10, 1), x, y / y.std(), lambda out, y: (y - F.relu(out)).abs().mean())


@sick("output-range")
def tanh_for_large_targets() -> sg.TrainingDebugger:
    x, y = data.regression()
    return fit(mlp(10, 1, nn.Tanh()), x, 10.0 * y, nn.SmoothL1Loss())


@sick("output-range")
def relu_before_bce_with_logits() -> sg.TrainingDebugger:
    x, y = data.blobs(400, 5, 2)
    return fit(mlp(5, 1, nn.ReLU()), x, y.float().unsqueeze(1), nn.BCEWithLogitsLoss())
