"""Sick: numbers that are not finite, too large, too small, or too fine for their dtype."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.healthy_models import CharTransformer
from patients.register import sick

NONFINITE = ("nonfinite-loss", "nonfinite-gradient", "nonfinite-parameter")


@sick(*NONFINITE)
def log_of_zero() -> sg.TrainingDebugger:
    """Cross-entropy by hand: -log(softmax), which underflows to zero once the model is sure."""
    x, y = data.blobs(400, 20, 4, spread=0.5)
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(20 * x, y, 300):
            p = F.softmax(model(xb), 1)
            loss = -(F.one_hot(yb, 4) * torch.log(p)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@sick(*NONFINITE)
def sqrt_at_zero() -> sg.TrainingDebugger:
    """The square root of what dropout has set to zero: finite forwards, infinite backwards."""
    x, y = data.regression()
    model = nn.Sequential(nn.Linear(10, 32), nn.Softplus(), nn.Dropout(0.2), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 100):
            h = model[2](model[1](model[0](xb)))
            optimizer.zero_grad()
            F.mse_loss(model[3](torch.sqrt(h)), yb).backward()
            optimizer.step()
    return watch


@sick(*NONFINITE)
def root_mean_square_of_nothing() -> sg.TrainingDebugger:
    """Root mean square error without an epsilon, on one point that is hit exactly in the end."""
    x, y = torch.tensor([[1.0]]), torch.tensor([[0.5]])
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    with torch.no_grad():
        model.weight.fill_(0.25)
        model.bias.fill_(0.0)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(60):
            optimizer.zero_grad()
            torch.sqrt(F.mse_loss(model(x), y)).backward()
            optimizer.step()
    return watch


@sick(*NONFINITE)
def distance_of_a_point_to_itself() -> sg.TrainingDebugger:
    """Pairwise distances by norm(): the diagonal is zero, and its gradient is NaN."""
    x, _ = data.blobs(128, 10)
    model = mlp(10, 16, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 60):
            z = model(xb)
            near = ((z[:, None] - z[None]) ** 2).sum(-1).sqrt()
            far = torch.cdist(xb, xb)
            optimizer.zero_grad()
            F.mse_loss(near, far).backward()
            optimizer.step()
    return watch


@sick(*NONFINITE)
def zero_by_zero() -> sg.TrainingDebugger:
    """Features standardised by hand; one column of a batch is constant, 0/0."""
    x, y = data.blobs()
    x[:, 3] = (torch.rand(512) < 0.1).float()
    model = mlp(20, 32, 4)
    optimizer = torch.optim.Adam(model.parameters())
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 300, 32):
            optimizer.zero_grad()
            F.cross_entropy(model((xb - xb.mean(0)) / xb.std(0)), yb).backward()
            optimizer.step()
    return watch


@sick(*NONFINITE, "loss-explosion", "gradient-explosion")
def exp_overflow() -> sg.TrainingDebugger:
    """Poisson rates by a bare exp() of inputs that were not scaled."""
    x = 30 * torch.rand(400, 5)
    y = torch.poisson(x[:, :1])
    model = mlp(5, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 200):
            log_rate = 5 * model(xb)
            loss = (torch.exp(log_rate) - yb * log_rate).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@sick(*NONFINITE)
def nan_in_the_data() -> sg.TrainingDebugger:
    """Missing values of a table come in as NaN, in 1 row of 400."""
    x, y = data.regression(400)
    x[137, 2] = float("nan")
    model = mlp(10, 32, 1)
    return fit(model, torch.optim.Adam(model.parameters()), x, y, 200)


@sick(*NONFINITE)
def inf_in_the_targets() -> sg.TrainingDebugger:
    """Targets are log(count), and one count was zero."""
    x, y = data.regression(400)
    y = torch.log(torch.clamp((3 * y).round(), min=0))
    y[torch.isinf(y)] = 0.0
    y[11] = float("-inf")
    model = mlp(10, 32, 1)
    return fit(model, torch.optim.Adam(model.parameters()), x, y, 200)


@sick(*NONFINITE)
def all_masked_attention() -> sg.TrainingDebugger:
    """A sequence that is padding only: softmax over nothing but -inf."""
    x = torch.randint(1, 30, (300, 8))
    x[torch.arange(8) >= torch.randint(1, 9, (300, 1))] = 0
    x[5] = 0
    y = (x > 0).sum(1) % 3
    embed, head = nn.Embedding(30, 16), nn.Linear(16, 3)
    model = nn.ModuleList([embed, head])
    optimizer = torch.optim.Adam(model.parameters())
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 150):
            h = embed(xb)
            scores = (h @ h.transpose(1, 2)).masked_fill((xb == 0).unsqueeze(1), float("-inf"))
            out = head((scores.softmax(-1) @ h).mean(1))
            optimizer.zero_grad()
            F.cross_entropy(out, yb).backward()
            optimizer.step()
    return watch


@sick(*NONFINITE)
def bce_of_a_bare_linear() -> sg.TrainingDebugger:
    """log of an output that can be negative."""
    x, y = data.blobs(400, 5, 2)
    model = mlp(5, 16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y.float().unsqueeze(1), 100):
            p = model(xb)
            loss = -(yb * torch.log(p) + (1 - yb) * torch.log(1 - p)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@sick(*NONFINITE)
def acos_at_one() -> sg.TrainingDebugger:
    """An angle by acos of a cosine that reaches 1."""
    x, _ = data.blobs(256, 10)
    model = mlp(10, 16, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    goal = F.normalize(torch.ones(3), dim=0)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 400):
            z = F.normalize(model(xb), dim=1)
            optimizer.zero_grad()
            torch.acos(z @ goal).mean().backward()
            optimizer.step()
    return watch


@sick(*NONFINITE)
def checkpoint_with_nan() -> sg.TrainingDebugger:
    """Weights that were already NaN when they were loaded."""
    model = mlp(20, 32, 4)
    with torch.no_grad():
        model[2].weight[1, 3] = float("nan")
    return fit(model, torch.optim.Adam(model.parameters()), *data.blobs(), 50)


@sick("amp-scale-collapse", "nonfinite-loss", "nonfinite-gradient")
def scaler_with_nan_loss() -> sg.TrainingDebugger:
    """fp16 with a NaN loss at every step: the scaler skips forever."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu")
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (xb, yb) in enumerate(data.batches(x, y, 150)):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(xb), yb)
            if i > 40:
                loss = loss + torch.log(torch.zeros(()) - 1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return watch


@sick("amp-scale-collapse", *NONFINITE)
def half_overflow_under_scaler() -> sg.TrainingDebugger:
    """A squared distance in fp16 that is beyond 65504, whatever the scale."""
    x, y = data.regression()
    model = mlp(10, 64, 1)
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu")
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, 400 * y, 150):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                out = model(xb)
            loss = (out - yb.half()).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return watch


@sick("amp-scale-collapse", "nonfinite-gradient")
def infinite_gradients_under_scaler() -> sg.TrainingDebugger:
    """The loss is finite, but sqrt at exactly zero makes infinite gradients at every scale."""
    x, y = data.regression()
    model = mlp(10, 64, 1)
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu")
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 200):
            optimizer.zero_grad()
            h = F.dropout(torch.sigmoid(model[0](xb)), 0.1)
            loss = F.mse_loss(model[2](torch.sqrt(h)), yb)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return watch


@sick("precision-underflow")
def bfloat16_tiny_rate() -> sg.TrainingDebugger:
    """A bfloat16 model fine-tuned at 1e-6: no weight changes a bit."""
    model = mlp(20, 64, 4).bfloat16()
    x, y = data.blobs()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x.bfloat16(), y, 250):
            optimizer.zero_grad()
            F.cross_entropy(model(xb).float(), yb).backward()
            optimizer.step()
    return watch


@sick("precision-underflow")
def bfloat16_sgd_small_rate() -> sg.TrainingDebugger:
    tokens, kinds = data.text()
    model = CharTransformer(kinds).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(120):
            x, y = data.windows(tokens, 32, 4)
            optimizer.zero_grad()
            F.cross_entropy(model(x).float().flatten(0, 1), y.flatten()).backward()
            optimizer.step()
    return watch


@sick("precision-underflow")
def half_weights_small_rate() -> sg.TrainingDebugger:
    """`model.half()` and SGD at 1e-6."""
    model = mlp(20, 64, 4).half()
    x, y = data.blobs()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x.half(), y, 250):
            optimizer.zero_grad()
            F.cross_entropy(model(xb).float(), yb).backward()
            optimizer.step()
    return watch


@sick("gradient-vanishing")
def deep_sigmoid() -> sg.TrainingDebugger:
    """Ten layers of sigmoids."""
    model = mlp(20, *[32] * 10, 4, activation=nn.Sigmoid)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.1), *data.blobs(), 300)


@sick("gradient-vanishing", "bad-initialization")
def deep_tanh_small_weights() -> sg.TrainingDebugger:
    model = mlp(20, *[64] * 12, 4, activation=nn.Tanh)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.02)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.05), *data.blobs(), 250)


@sick("gradient-vanishing", "loss-plateau", missed="it needs the activations (saturated-units)")
def saturated_sigmoid_output() -> sg.TrainingDebugger:
    """Raw pixels of 0..255 into sigmoids with large weights: every unit is at 0 or 1, nothing gets back."""
    x = 255 * torch.rand(400, 50)
    y = (x[:, :10].sum(1) > x[:, 10:20].sum(1)).float().unsqueeze(1)
    model = nn.Sequential(nn.Linear(50, 32), nn.Sigmoid(), nn.Linear(32, 1), nn.Sigmoid())
    for layer in (model[0], model[2]):
        nn.init.normal_(layer.weight, std=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 400):
            optimizer.zero_grad()
            F.mse_loss(model(xb), yb).backward()
            optimizer.step()
    return watch


class Recurrent(nn.Module):
    """A recurrence written by hand, its matrix scaled."""

    def __init__(self, scale: float, activation: str = "relu") -> None:
        super().__init__()
        self.enter, self.again, self.out = nn.Linear(2, 32), nn.Linear(32, 32, bias=False), nn.Linear(32, 1)
        nn.init.orthogonal_(self.again.weight, gain=scale)
        self.activation = getattr(torch, activation)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 32)
        for t in range(x.shape[1]):
            h = self.activation(self.enter(x[:, t]) + self.again(h))
        return self.out(h)


@sick("gradient-explosion", "loss-explosion", "lr-too-high", *NONFINITE)
def exploding_recurrence() -> sg.TrainingDebugger:
    """A ReLU recurrence over 40 steps without clipping."""
    x = torch.randn(400, 40, 2)
    y = x[:, :, 0].sum(1, keepdim=True) / 6
    model = Recurrent(2.0)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.01), x, y, 100)


@sick("gradient-explosion", "loss-explosion", "lr-too-high", *NONFINITE)
def exploding_rnn_sine() -> sg.TrainingDebugger:
    """nn.RNN with ReLU on long sequences, momentum, a rate that just about works at first."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = nn.RNN(1, 32, nonlinearity="relu", batch_first=True), nn.Linear(32, 1)
            nn.init.eye_(self.rnn.weight_hh_l0)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.rnn(x)[0][:, -1])

    x = torch.rand(300, 60, 1)
    y = x.sum(1)
    model = Model()
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), x, y, 60)


@sick("gradient-explosion", "bad-initialization", "loss-explosion")
def gradients_explode_with_depth() -> sg.TrainingDebugger:
    """Fifteen linear layers whose weights are a few times too large."""
    model = mlp(20, *[48] * 15, 4, activation=nn.LeakyReLU)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.7)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-4), *data.blobs(), 200)


@sick("gradient-explosion", "loss-spike", "loss-explosion", *NONFINITE)
def corrupted_batches() -> sg.TrainingDebugger:
    """From step 150 on, batches come 1000 times too large (bytes read as something else)."""
    x, y = data.regression()
    model = mlp(10, 32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (xb, yb) in enumerate(data.batches(x, y, 250)):
            optimizer.zero_grad()
            F.mse_loss(model(1000 * xb if i > 150 else xb), yb).backward()
            optimizer.step()
    return watch


# -- where it began: the batch, or an op of the forward pass --------------------------------------------------------


@sick("nonfinite-input")
def a_constant_column_standardised() -> sg.TrainingDebugger:
    """One feature is the same in all rows: 0 / 0, in every batch."""
    x, y = data.regression()
    x[:, 4] = 1.0
    model = mlp(10, 32, 1)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), (x - x.mean(0)) / x.std(0), y, 30)


@sick("nonfinite-input")
def a_missing_target() -> sg.TrainingDebugger:
    """One measurement was not made, and is NaN in the table; the batch that holds it comes in the end."""
    x, y = data.regression()
    y[7] = torch.nan
    model = mlp(10, 32, 1)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y, 200)


class _OwnNorm(nn.Module):
    """Standardises over the features of a group, of which one has a single member."""

    def __init__(self, groups: list[int]) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([(g - g.mean(1, keepdim=True)) / g.std(1, keepdim=True) for g in x.split(self.groups, 1)], 1)


@sick("nonfinite-activation")
def deviation_of_one() -> sg.TrainingDebugger:
    x, y = data.regression()
    model = nn.Sequential(nn.Linear(10, 9), _OwnNorm([4, 4, 1]), nn.ReLU(), nn.Linear(9, 1))
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y, 30)


class _Mixture(nn.Module):
    """Weights by `exp` without taking the maximum out first."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.value = nn.Linear(20, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.exp(self.score(x))
        return self.value(weights / weights.sum(1, keepdim=True))


@sick("nonfinite-activation")
def softmax_by_hand() -> sg.TrainingDebugger:
    """Scores of a few hundred: infinity over infinity."""
    x, y = data.blobs(400, 20, 4)
    model = _Mixture()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), 200 * x, y, 30)
