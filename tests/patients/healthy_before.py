"""Healthy: batches whose samples meet on purpose, sequences in every layout, targets that look like inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import seismograd as sg
from patients.register import healthy


def sequences(count: int = 256, length: int = 10) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, length, 4)
    return x, x.mean(1)[:, :3].argmax(1)


def text(count: int = 128, length: int = 13) -> Tensor:
    """Words that follow each other by a rule, mostly."""
    tokens = torch.zeros(count, length, dtype=torch.long)
    tokens[:, 0] = torch.randint(0, 20, (count,))
    for at in range(1, length):
        odd = torch.rand(count) < 0.2
        tokens[:, at] = torch.where(odd, torch.randint(0, 20, (count,)), (tokens[:, at - 1] * 3 + 1) % 20)
    return tokens


def fit(model: nn.Module, x: Tensor, y: Tensor, epochs: int = 6, lr: float = 1e-3) -> sg.TrainingDebugger:
    """A loop as in every tutorial: a loader, Adam, the loss that fits the target."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loss_fn = nn.MSELoss() if y.is_floating_point() else nn.CrossEntropyLoss()
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True, drop_last=True)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(epochs):
            for xb, yb in loader:
                optimizer.zero_grad()
                loss_fn(model(xb), yb).backward()
                optimizer.step()
    return watch


class Causal(nn.Module):
    """A small language model of encoder layers."""

    def __init__(self, masked: bool = True) -> None:
        super().__init__()
        self.masked = masked
        self.embed, self.place = nn.Embedding(20, 32), nn.Embedding(16, 32)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64, batch_first=True), 2)
        self.head = nn.Linear(32, 20)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1)) if self.masked else None
        return self.head(self.encoder(self.embed(x) + self.place(torch.arange(x.size(1))), mask=mask))


@healthy()
def causal_language_model() -> sg.TrainingDebugger:
    tokens = text()
    model = Causal()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(4):
            for (x,) in DataLoader(TensorDataset(tokens), batch_size=16, shuffle=True):
                logits = model(x)[:, :-1]
                loss = F.cross_entropy(logits.reshape(-1, 20), x[:, 1:].reshape(-1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return watch


@healthy()
def language_model_time_first() -> sg.TrainingDebugger:
    """As in torch's word language model: (time, batch), the loss inside of nothing, a dropout."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.drop = nn.Embedding(20, 16), nn.Dropout(0.2)
            self.rnn = nn.LSTM(16, 32)
            self.head = nn.Linear(32, 20)

        def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            made, state = self.rnn(self.drop(self.embed(x)), state)
            return self.head(made).view(-1, 20), state

    tokens = text(24, 121).T.contiguous()
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(4):
            state = (torch.zeros(1, 24, 32), torch.zeros(1, 24, 32))
            for at in range(0, 120, 12):
                state = (state[0].detach(), state[1].detach())
                logits, state = model(tokens[at : at + 12], state)
                optimizer.zero_grad()
                F.cross_entropy(logits, tokens[at + 1 : at + 13].reshape(-1)).backward()
                optimizer.step()
    return watch


@healthy()
def masked_language_model() -> sg.TrainingDebugger:
    """BERT's way: some words are hidden, and only those are asked for. It sees both sides."""
    tokens = text(256)
    model = Causal(masked=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(4):
            for (x,) in DataLoader(TensorDataset(tokens), batch_size=32, shuffle=True):
                hidden = torch.rand(x.shape) < 0.3
                labels = torch.where(hidden, x, -100)
                logits = model(torch.where(hidden, 0, x))
                optimizer.zero_grad()
                F.cross_entropy(logits.view(-1, 20), labels.view(-1)).backward()
                optimizer.step()
    return watch


@healthy()
def translation_sees_the_whole_source() -> sg.TrainingDebugger:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 32)
            self.body = nn.Transformer(32, 2, 1, 1, 64, batch_first=True, dropout=0.0)
            self.head = nn.Linear(32, 20)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(target.size(1))
            return self.head(self.body(self.embed(source), self.embed(target), tgt_mask=mask))

    source = text(128, 9)
    target = source.flip(1)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(4):
            for s, t in DataLoader(TensorDataset(source, target), batch_size=16, shuffle=True):
                logits = model(s, t[:, :-1])
                optimizer.zero_grad()
                F.cross_entropy(logits.flatten(0, 1), t[:, 1:].flatten()).backward()
                optimizer.step()
    return watch


@healthy()
def autoencoder_of_its_input() -> sg.TrainingDebugger:
    x = torch.randn(256, 3) @ torch.randn(3, 12)
    return fit(nn.Sequential(nn.Linear(12, 3), nn.Tanh(), nn.Linear(3, 12)), x, x)


@healthy()
def tagger_one_sentence_at_a_time() -> sg.TrainingDebugger:
    """torch's tutorial: the first axis is the sentence's, all sentences as long as each other."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 16)
            self.rnn = nn.LSTM(16, 16)
            self.head = nn.Linear(16, 5)

        def forward(self, sentence: Tensor) -> Tensor:
            made, _ = self.rnn(self.embed(sentence).view(len(sentence), 1, -1))
            return F.log_softmax(self.head(made.view(len(sentence), -1)), dim=1)

    tokens = text(150, 8)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for sentence in tokens:
            model.zero_grad()
            F.nll_loss(model(sentence), sentence % 5).backward()
            optimizer.step()
    return watch


@healthy()
def nodes_of_one_graph() -> sg.TrainingDebugger:
    """A graph network on features with time: nodes are no samples, and mixing them is the point."""

    class Model(nn.Module):
        def __init__(self, edges: Tensor) -> None:
            super().__init__()
            self.edges = edges / edges.sum(1, keepdim=True)
            self.rnn = nn.GRU(4, 16, batch_first=True)
            self.head = nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.edges @ self.rnn(x)[0][:, -1])

    x, y = sequences(60)
    model = Model((torch.rand(60, 60) < 0.1).float() + torch.eye(60))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(40):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return watch


@healthy()
def batch_norm_by_hand() -> sg.TrainingDebugger:
    """Statistics of the batch, in a layer of the user's own that never uses others."""

    class Norm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x - x.mean(0)) / torch.sqrt(x.var(0, unbiased=False) + 1e-5)

    x = torch.randn(256, 6)
    return fit(nn.Sequential(nn.Linear(6, 32), Norm(), nn.ReLU(), nn.Linear(32, 3)), x, x[:, :3].argmax(1))


@healthy()
def similarity_of_all_pairs() -> sg.TrainingDebugger:
    """As CLIP does it: the model's output is a table of samples by samples."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Linear(6, 16), nn.Linear(6, 16)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return 5 * F.normalize(self.one(a), dim=1) @ F.normalize(self.other(b), dim=1).T

    a = torch.randn(256, 6)
    b = a + 0.1 * torch.randn(256, 6)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(5):
            for x, y in DataLoader(TensorDataset(a, b), batch_size=32, shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(x, y), torch.arange(32)).backward()
                optimizer.step()
    return watch


@healthy()
def video_time_first() -> sg.TrainingDebugger:
    """(time, batch, features), a target for each: the first axis is time, though it stands everywhere."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(4, 16, bidirectional=True)
            self.head = nn.Linear(32, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0]).squeeze(-1)

    x = torch.randn(12, 256, 4)
    y = x.mean(2) + x.flip(0).mean(2)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(40):
            at = torch.randint(0, 256, (32,))
            optimizer.zero_grad()
            F.mse_loss(model(x[:, at]), y[:, at]).backward()
            optimizer.step()
    return watch


@healthy()
def straight_line_without_noise() -> sg.TrainingDebugger:
    """A column explains the target in full, as in a first exercise."""
    x = torch.randn(256, 3)
    return fit(nn.Linear(3, 1), x, 2 * x[:, :1] + 1, lr=1e-2)


@healthy()
def padded_sentences() -> sg.TrainingDebugger:
    """Lengths, masks and packing: samples of every length in one batch, kept apart."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 16, padding_idx=0)
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.rnn = nn.GRU(16, 16, batch_first=True)
            self.head = nn.Linear(32, 3)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            padding = torch.arange(x.size(1)) >= lengths.unsqueeze(1)
            seen = self.layer(self.embed(x), src_key_padding_mask=padding).masked_fill(padding.unsqueeze(-1), 0).sum(1)
            packed = nn.utils.rnn.pack_padded_sequence(self.embed(x), lengths, batch_first=True, enforce_sorted=False)
            return self.head(torch.cat([seen, self.rnn(packed)[1][-1]], 1))

    x, lengths = torch.randint(1, 20, (256, 9)), torch.randint(3, 10, (256,))
    x = x.masked_fill(torch.arange(9) >= lengths.unsqueeze(1), 0)
    y = (x.float().sum(1) / lengths).div(5).long().clamp(1, 3) - 1
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(5):
            for xb, n, yb in DataLoader(TensorDataset(x, lengths, y), batch_size=32, shuffle=True):
                optimizer.zero_grad()
                F.cross_entropy(model(xb, n), yb).backward()
                optimizer.step()
    return watch


@healthy()
def language_model_with_its_loss_inside() -> sg.TrainingDebugger:
    """As nanoGPT does it: the targets go into the model, but only into its loss."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Causal()

        def forward(self, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.body(x)
            return logits, F.cross_entropy(logits.view(-1, 20), targets.reshape(-1))

    tokens = text()
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(4):
            for x, y in DataLoader(TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size=16, shuffle=True):
                _, loss = model(x, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return watch


@healthy()
def discriminator_that_compares_samples() -> sg.TrainingDebugger:
    """Minibatch discrimination: how close each sample is to all others is a feature."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.kernels, self.head = nn.Linear(6, 16), nn.Linear(16, 5 * 4), nn.Linear(16 + 5, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = F.leaky_relu(self.body(x), 0.2)
            m = self.kernels(h).view(-1, 5, 4)
            near = torch.exp(-(m.unsqueeze(0) - m.unsqueeze(1)).abs().sum(3)).sum(1) - 1
            return self.head(torch.cat([h, near], 1))

    x = torch.cat([torch.randn(128, 6), 0.1 * torch.randn(128, 6) + 1])
    return fit(Model(), x, torch.arange(256).ge(128).float().unsqueeze(1))
