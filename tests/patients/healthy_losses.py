"""Healthy: what goes into these losses looks wrong, and is right."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.register import healthy

Loss = Callable[[Tensor, Tensor], Tensor]


def fit(
    model: nn.Module, x: Tensor, y: Tensor, loss_fn: Loss, *, steps: int = 60, lr: float = 3e-3
) -> sg.TrainingDebugger:
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, steps):
            optimizer.zero_grad()
            loss_fn(model(xb), yb).backward()
            optimizer.step()
    return watch


def mlp(inputs: int, outputs: int, *last: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs), *last)


@healthy()
def log_softmax_before_cross_entropy() -> sg.TrainingDebugger:
    """Harmless: the second one changes nothing."""
    x, y = data.blobs()
    return fit(mlp(20, 4, nn.LogSoftmax(dim=1)), x, y, nn.CrossEntropyLoss())


@healthy()
def nll_of_the_logarithm_of_softmax() -> sg.TrainingDebugger:
    x, y = data.blobs()
    return fit(mlp(20, 4, nn.Softmax(dim=1)), x, y, lambda out, y: F.nll_loss(torch.log(out + 1e-8), y))


class _Attention(nn.Module):
    """Softmax inside, logits outside; the attention's output is pooled by a softmax too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.score = nn.Embedding(12, 16), nn.Linear(16, 48), nn.Linear(16, 1)
        self.out = nn.Linear(16, 12)

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = self.mix(self.embed(tokens)).chunk(3, dim=-1)
        mixed = (q @ k.transpose(1, 2) / 4.0).softmax(dim=-1) @ v
        pooled = (self.score(mixed).softmax(dim=1) * mixed).sum(dim=1)
        return self.out(pooled)


@healthy()
def attention_with_logits() -> sg.TrainingDebugger:
    tokens = torch.randint(0, 12, (256, 8))
    return fit(_Attention(), tokens, tokens[:, 0], nn.CrossEntropyLoss())


@healthy()
def distillation_of_points() -> sg.TrainingDebugger:
    x, _ = data.blobs()
    teacher = mlp(20, 4)

    def loss(out: Tensor, xb: Tensor) -> Tensor:
        with torch.no_grad():
            soft = (teacher(xb) / 2.0).softmax(dim=1)
        return 4.0 * F.kl_div((out / 2.0).log_softmax(dim=1), soft, reduction="batchmean")

    return fit(mlp(20, 4), x, x, loss)


@healthy()
def soft_capped_logits() -> sg.TrainingDebugger:
    """Logits through `30 * tanh(x / 30)`, as large language models have them."""
    x, y = data.blobs()
    return fit(mlp(20, 4), x, y, lambda out, y: F.cross_entropy(30.0 * torch.tanh(out / 30.0), y))


@healthy()
def pooled_after_relu() -> sg.TrainingDebugger:
    """SqueezeNet's head: a convolution, ReLU, and the mean over the picture are the logits."""
    x, y = data.images(256, 4)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    )
    return fit(model, x, y, nn.CrossEntropyLoss())


@healthy()
def soft_labels() -> sg.TrainingDebugger:
    """Mixup: targets are probabilities."""
    x, y = data.blobs()
    one_hot = F.one_hot(y, 4).float()
    mixed = 0.7 * one_hot + 0.3 * one_hot.roll(1, 0)
    return fit(mlp(20, 4), 0.7 * x + 0.3 * x.roll(1, 0), mixed, nn.CrossEntropyLoss(label_smoothing=0.1))


@healthy()
def noisy_real_and_fake_labels() -> sg.TrainingDebugger:
    """Labels of 0.7 to 1.2 and 0 to 0.3, as GANs are told to use."""
    x, y = data.blobs(400, 5, 2)
    labels = torch.where(y == 1, 0.7 + 0.5 * torch.rand(400), 0.3 * torch.rand(400)).unsqueeze(1)
    return fit(mlp(5, 1), x, labels, nn.BCEWithLogitsLoss())


@healthy()
def unknown_labels_masked() -> sg.TrainingDebugger:
    """Several labels a sample, -1 where nobody knows, masked after the loss."""
    x = torch.randn(400, 8)
    y = (x[:, :3] > 0).float()
    y[torch.rand(400, 3) < 0.2] = -1.0

    def loss(out: Tensor, y: Tensor) -> Tensor:
        each = F.binary_cross_entropy_with_logits(out, y, reduction="none")
        return (each * (y >= 0)).sum() / (y >= 0).sum()

    return fit(mlp(8, 3), x, y, loss)


@healthy()
def ignored_labels() -> sg.TrainingDebugger:
    x, y = data.images(256, 4, 8)
    y = y[:, None, None].expand(-1, 8, 8).clone()
    y[:, 0] = 255
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    return fit(model, x, y, nn.CrossEntropyLoss(ignore_index=255))


@healthy()
def quantiles() -> sg.TrainingDebugger:
    """(N, 3) against (N, 1): meant."""
    x, y = data.regression()
    levels = torch.tensor([0.1, 0.5, 0.9])

    def loss(out: Tensor, y: Tensor) -> Tensor:
        off = y - out
        return torch.maximum(levels * off, (levels - 1) * off).mean()

    return fit(mlp(10, 3), x, y, loss)


@healthy()
def pairwise_ranking() -> sg.TrainingDebugger:
    """All pairs of a batch: (N, 1) less (1, N), of the output itself."""
    x, y = data.regression()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        margins = out - out.t()
        return F.softplus(-margins * torch.sign(y - y.t())).mean()

    return fit(mlp(10, 1), x, y, loss)


@healthy()
def energy_distance() -> sg.TrainingDebugger:
    """Each sample against each example, on purpose."""
    x, y = data.regression()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        out, y = out.squeeze(1), y.squeeze(1)
        between = (out[:, None] - y[None, :]).abs().mean()
        within = (out[:, None] - out[None, :]).abs().mean()
        return 2.0 * between - within

    return fit(mlp(10, 1), x, y, loss)


@healthy()
def weighted_columns() -> sg.TrainingDebugger:
    """As many samples as columns, (32, 32), and weights of (32) for the columns: no outer product."""
    x, _ = data.blobs(512, 20)
    y = torch.tanh(x @ torch.randn(20, 32) / 4.0)
    weights = torch.linspace(0.5, 1.5, 32)
    return fit(mlp(20, 32), x, y, lambda out, y: (weights * (out - y) ** 2).mean())


@healthy()
def square_targets() -> sg.TrainingDebugger:
    """One number for each sample against 32 readings of it, 32 samples a batch."""
    x, y = data.regression()
    readings = y + 0.1 * torch.randn(512, 32)
    return fit(mlp(10, 1), x, readings, lambda out, y: ((out - y) ** 2).mean())


@healthy()
def last_batch_of_one() -> sg.TrainingDebugger:
    """65 samples in batches of 16: the last one has a single sample, (1, 1) against (1)."""
    x, y = data.regression(65)
    model = mlp(10, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(10):
            for at in range(0, 65, 16):
                out, yb = model(x[at : at + 16]), y[at : at + 16]
                optimizer.zero_grad()
                F.mse_loss(out.squeeze(), yb.squeeze()).backward()
                optimizer.step()
    return watch


@healthy()
def one_target_for_all() -> sg.TrainingDebugger:
    """Least squares GAN style: a whole batch against one number."""
    x, _ = data.regression()
    return fit(mlp(10, 1), x, x, lambda out, x: ((out - 1.0) ** 2).mean() + ((out - x.mean()) ** 2).mean())


@healthy()
def linear_autoencoder() -> sg.TrainingDebugger:
    """PCA by gradient descent: the layer between is narrow, and that is the point."""
    x = torch.randn(512, 4) @ torch.randn(4, 20)
    return fit(nn.Sequential(nn.Linear(20, 4), nn.Linear(4, 20)), x, x, nn.MSELoss())


class _Adapted(nn.Module):
    """A frozen layer with a low-rank one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.a, self.b = nn.Linear(20, 32), nn.Linear(20, 4, bias=False), nn.Linear(4, 32, bias=False)
        self.out = nn.Linear(32, 4)
        self.base.requires_grad_(False)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.gelu(self.base(x) + self.b(self.a(x))))


@healthy()
def low_rank_adapter() -> sg.TrainingDebugger:
    x, y = data.blobs()
    return fit(_Adapted(), x, y, nn.CrossEntropyLoss())


@healthy()
def separable_convolutions() -> sg.TrainingDebugger:
    """Depthwise and pointwise without an activation between them, as in Xception."""
    x, y = data.images(256, 4)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 16, 1), nn.BatchNorm2d(16)),
        *(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)),
    )
    return fit(model, x, y, nn.CrossEntropyLoss())


class _Latent(nn.Module):
    """No activation between the mean and the decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.mean, self.spread = nn.Linear(20, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.decode = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 20))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = F.relu(self.encode(x))
        mean, spread = self.mean(hidden), self.spread(hidden)
        return self.decode(mean + torch.randn_like(mean) * (0.5 * spread).exp()), mean, spread


@healthy()
def variational_autoencoder_of_points() -> sg.TrainingDebugger:
    x = torch.randn(512, 4) @ torch.randn(4, 20) / 2.0
    model = _Latent()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 80):
            out, mean, spread = model(xb)
            loss = F.mse_loss(out, xb) - 0.005 * (1 + spread - mean**2 - spread.exp()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


class _ByHand(nn.Module):
    """The non-linearity is a mask, which has no gradient of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(20, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        return self.second(hidden * (hidden > 0))


@healthy()
def activation_by_hand() -> sg.TrainingDebugger:
    x, y = data.blobs()
    return fit(_ByHand(), x, y, nn.CrossEntropyLoss())


@healthy()
def tanh_for_pictures() -> sg.TrainingDebugger:
    """Pixels from -1 to 1, and a tanh at the end."""
    x = torch.tanh(torch.randn(512, 4) @ torch.randn(4, 36))
    return fit(mlp(36, 36, nn.Tanh()), x, x, nn.MSELoss())


@healthy()
def counts_with_noise() -> sg.TrainingDebugger:
    """A quantity that is never negative, measured with noise that may be, and a softplus at the end."""
    x = torch.randn(512, 10)
    y = F.relu(2.0 * x[:, :1] + x[:, 1:2]) + 0.05 * torch.randn(512, 1)
    return fit(mlp(10, 1, nn.Softplus()), x, y, nn.MSELoss())


@healthy()
def depth_with_holes() -> sg.TrainingDebugger:
    """-1 where the sensor saw nothing, masked after the difference."""
    x = torch.randn(512, 10)
    y = 1.0 + F.relu(x[:, :4])
    y[torch.rand(512, 4) < 0.3] = -1.0
    return fit(mlp(10, 4, nn.Softplus()), x, y, lambda out, y: (((F.relu(out) - y) ** 2) * (y > 0)).mean())
