"""Sick: samples that mix, and targets that can be seen."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from patients.healthy_before import Causal, fit, sequences, text
from patients.register import sick


@sick("batch-mixing")
def lstm_that_takes_samples_for_time() -> sg.TrainingDebugger:
    """`batch_first` forgotten: the data is (batch, time, features)."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(4, 16)
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    return fit(Model(), *sequences())


@sick("batch-mixing")
def attention_over_the_batch() -> sg.TrainingDebugger:
    """A transformer layer without `batch_first`, in a loop without a loader."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.into = nn.Linear(4, 16)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32)
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layer(self.into(x)).mean(1))

    x, y = sequences()
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step in range(30):
            at = slice(step % 8 * 32, step % 8 * 32 + 32)
            optimizer.zero_grad()
            F.cross_entropy(model(x[at]), y[at]).backward()
            optimizer.step()
    return watch


@sick("batch-mixing")
def view_instead_of_transpose() -> sg.TrainingDebugger:
    """(batch, time, features) is viewed as (time, batch, features) for a seq-first layer."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 16)
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            n, t, f = x.shape
            return self.head(self.rnn(x.view(t, n, f))[0][-1])

    return fit(Model(), *sequences())


@sick("batch-mixing")
def softmax_over_the_samples() -> sg.TrainingDebugger:
    """`dim=0` in an attention pooling's softmax and at the end: a table, and no loader."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))

        def forward(self, x: Tensor) -> Tensor:
            return F.log_softmax(self.body(x), dim=0)

    x = torch.randn(256, 6)
    y = x[:, :3].argmax(1)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(40):
            at = torch.randint(0, 256, (32,))
            optimizer.zero_grad()
            F.nll_loss(model(x[at]), y[at]).backward()
            optimizer.step()
    return watch


@sick("batch-mixing")
def images_normalised_together() -> sg.TrainingDebugger:
    """A layer norm whose shape includes the batch."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 8, 3, padding=1)
            self.norm = nn.LayerNorm([32, 8, 8, 8])
            self.head = nn.Linear(8 * 64, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(F.relu(self.norm(self.conv(x))).flatten(1))

    x = torch.randn(256, 1, 8, 8)
    return fit(Model(), x, x.mean((1, 2, 3)).mul(20).long().clamp(-1, 1) + 1)


@sick("target-leak")
def language_model_without_a_mask() -> sg.TrainingDebugger:
    model = Causal(masked=False)
    return _language(model)


@sick("target-leak")
def bidirectional_language_model() -> sg.TrainingDebugger:
    """A recurrent one, flattened by its own forward."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 16)
            self.rnn = nn.GRU(16, 16, batch_first=True, bidirectional=True)
            self.head = nn.Linear(32, 20)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(self.embed(x))[0]).view(-1, 20)

    return _language(Model())


@sick("target-leak")
def forecast_with_centred_convolutions() -> sg.TrainingDebugger:
    """The next value of a series, by convolutions that see it."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv1d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 1, 3, padding=1))

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x.unsqueeze(1)).squeeze(1)

    series = torch.sin(torch.arange(40) * 0.3 + torch.rand(128, 1) * 6) + 0.1 * torch.randn(128, 40)
    return fit(Model(), series[:, :-1], series[:, 1:])


@sick("target-leak")
def label_among_the_features() -> sg.TrainingDebugger:
    """The whole table was scaled, label and all, and the label's column was never dropped."""
    x = torch.randn(256, 6)
    y = (x[:, 0] + torch.randn(256) > 0).long()
    table = torch.cat([x, y.float().unsqueeze(1)], 1)
    table = (table - table.mean(0)) / table.std(0)
    return fit(nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 2)), table, y)


@sick("target-leak")
def windows_that_end_too_late() -> sg.TrainingDebugger:
    """A window's last value is the one to be predicted: cut off by one."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(1, 16, batch_first=True)
            self.head = nn.Linear(16, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    series = torch.cumsum(torch.randn(300), 0) / 10
    windows = series.unfold(0, 12, 1)
    return fit(Model(), windows.unsqueeze(-1), windows[:, -1:])


def _language(model: nn.Module) -> sg.TrainingDebugger:
    tokens = text()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size=16, shuffle=True)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(3):
            for x, y in loader:
                logits = model(x)
                loss = F.cross_entropy(logits.reshape(-1, 20), y.reshape(-1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return watch


@sick("target-leak")
def decoder_fed_with_its_own_target() -> sg.TrainingDebugger:
    """A translation whose decoder gets the words that it is to say, not those before them."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 16)
            self.encoder, self.decoder = (nn.GRU(16, 16, batch_first=True) for _ in range(2))
            self.head = nn.Linear(16, 20)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            _, state = self.encoder(self.embed(source))
            return self.head(self.decoder(self.embed(target), state)[0])

    source = text(128, 9)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(4):
            for s, t in DataLoader(TensorDataset(source, source.flip(1)), batch_size=16, shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(s, t).flatten(0, 1), t.flatten()).backward()
                optimizer.step()
    return watch
