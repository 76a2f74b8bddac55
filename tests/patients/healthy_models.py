"""Healthy: architectures, from small convolutional nets to transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.register import healthy


def convnet(classes: int = 10, norm: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in ((1, 8), (8, 16)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after) if norm else nn.Identity()]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 9, classes))


@healthy()
def convnet_sgd() -> sg.TrainingDebugger:
    """Convolutions with batch norm, SGD at 0.1 with momentum and weight decay: the recipe of the ResNet papers."""
    model = convnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    return fit(model, optimizer, *data.images(), 300)


@healthy()
def convnet_adam() -> sg.TrainingDebugger:
    model = convnet(norm=False)
    return fit(model, torch.optim.Adam(model.parameters()), *data.images(), 300)


@healthy()
def label_smoothing() -> sg.TrainingDebugger:
    x, y = data.images(noise=0.4)
    model = convnet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 250):
            optimizer.zero_grad()
            loss_fn(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def mixup() -> sg.TrainingDebugger:
    x, y = data.images(noise=0.4)
    model = convnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 350):
            share, other = float(torch.rand(())), torch.randperm(len(xb))
            out = model(share * xb + (1 - share) * xb[other])
            loss = share * F.cross_entropy(out, yb) + (1 - share) * F.cross_entropy(out, yb[other])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


class Block(nn.Module):
    """A residual block whose last scale starts at zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        nn.init.zeros_(self.inner[-1].weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.inner(x))


@healthy()
def resnet_zero_init() -> sg.TrainingDebugger:
    x, y = data.images()
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), *[Block(8) for _ in range(4)], nn.AvgPool2d(4), nn.Flatten(), nn.Linear(72, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    return fit(model, optimizer, x, y, 90)


@healthy()
def zero_init_residual_mlp() -> sg.TrainingDebugger:
    """ReZero and Fixup: the last matrix of each branch starts at zero, so do the gradients of the others."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
            nn.init.zeros_(self.down.weight)
            nn.init.zeros_(self.down.bias)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(F.gelu(self.up(x)))

    model = nn.Sequential(nn.Linear(20, 32), *[Residual() for _ in range(6)], nn.Linear(32, 4))
    return fit(model, torch.optim.Adam(model.parameters(), lr=2e-3), *data.blobs())


@healthy()
def zero_init_head() -> sg.TrainingDebugger:
    """The last layer starts at zero, so that the first loss is exactly log(classes)."""
    model = mlp(20, 64, 64, 4)
    nn.init.zeros_(model[-1].weight)
    nn.init.zeros_(model[-1].bias)
    return fit(model, torch.optim.Adam(model.parameters()), *data.blobs())


def pretrained() -> tuple[nn.Sequential, Tensor, Tensor]:
    """A model that knows four classes, and the points it knows them from."""
    x, y = data.blobs(800, 20, 4)
    model = mlp(20, 64, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for xb, yb in data.batches(x, y, 250):
        optimizer.zero_grad()
        F.cross_entropy(model(xb), yb).backward()
        optimizer.step()
    return model, x, y


@healthy()
def lstm_sequences() -> sg.TrainingDebugger:
    """Which of two halves of a sequence is larger: stays at chance for a while, as LSTMs do."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = nn.LSTM(1, 24, batch_first=True), nn.Linear(24, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.rnn(x)[0][:, -1])

    model = Model()
    x = torch.randn(1000, 16, 1)
    y = (x[:, :8].sum((1, 2)) > x[:, 8:].sum((1, 2))).long()
    return fit(model, torch.optim.Adam(model.parameters(), lr=5e-3), x, y, 400)


@healthy()
def gru_forecast() -> sg.TrainingDebugger:
    """A sine with noise, one value ahead, gradients clipped."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = nn.GRU(1, 16, batch_first=True), nn.Linear(16, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.rnn(x)[0][:, -1])

    series = torch.sin(torch.arange(1200) * 0.2) + 0.1 * torch.randn(1200)
    x = series.unfold(0, 20, 1)[:-1].unsqueeze(2)
    y = series[20:].unsqueeze(1)
    model = Model()
    return fit(model, torch.optim.Adam(model.parameters(), lr=5e-3), x, y, 180)


@healthy()
def vanilla_rnn_clipped() -> sg.TrainingDebugger:
    """The character RNN: plain tanh, SGD with clipping."""
    tokens, kinds = data.text()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn = nn.Embedding(kinds, 16), nn.RNN(16, 48, batch_first=True)
            self.out = nn.Linear(48, kinds)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.rnn(self.embed(x))[0])

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(250):
            x, y = data.windows(tokens, 24, 16)
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return watch


class CharTransformer(nn.Module):
    """nanoGPT's shape in small: causal attention with a mask of -inf, tied embedding and head."""

    def __init__(self, kinds: int, width: int = 32, length: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(kinds, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, kinds, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        nn.init.normal_(self.place.weight, std=0.02)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x) + self.place.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(h, mask=self.mask)))


@healthy()
def char_transformer() -> sg.TrainingDebugger:
    tokens, kinds = data.text()
    model = CharTransformer(kinds)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(120):
            x, y = data.windows(tokens, 32, 8)
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return watch


@healthy()
def masked_attention() -> sg.TrainingDebugger:
    """Sequences of different length, padding masked with -inf, the mean over the real tokens."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(50, 24, padding_idx=0)
            self.attend = nn.MultiheadAttention(24, 2, batch_first=True)
            self.out = nn.Linear(24, 3)

        def forward(self, x: Tensor) -> Tensor:
            pad = x == 0
            h = self.embed(x)
            h = h + self.attend(h, h, h, key_padding_mask=pad)[0]
            h = h.masked_fill(pad.unsqueeze(2), 0.0).sum(1) / (~pad).sum(1, keepdim=True)
            return self.out(h)

    x = torch.randint(1, 50, (800, 12))
    x[torch.arange(12) >= torch.randint(3, 13, (800, 1))] = 0
    y = ((x % 3 == 0) & (x > 0)).sum(1).clamp(max=2)
    model = Model()
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), x, y, 350)


@healthy()
def sparse_embedding() -> sg.TrainingDebugger:
    """A table of 20,000 rows of which a batch touches 50, sparse gradients."""
    table, head = nn.Embedding(20_000, 16, sparse=True), nn.Linear(16, 2)
    model = nn.ModuleList([table, head])
    optimizers = [torch.optim.SparseAdam(table.parameters(), lr=0.01), torch.optim.Adam(head.parameters(), lr=0.01)]
    label = torch.randint(0, 2, (20_000,))
    popular = torch.randint(0, 20_000, (400,))
    with sg.watch(model, optimizers, sinks=[]) as watch:
        for _ in range(300):
            ids = popular[torch.randint(0, 400, (50,))]
            for optimizer in optimizers:
                optimizer.zero_grad()
            F.cross_entropy(head(table(ids)), label[ids]).backward()
            for optimizer in optimizers:
                optimizer.step()
    return watch


@healthy()
def mixture_of_experts() -> sg.TrainingDebugger:
    """Top-1 of eight experts: in most steps some of them get no gradient at all."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(20, 8)
            self.experts = nn.ModuleList([mlp(20, 32, 4) for _ in range(8)])

        def forward(self, x: Tensor) -> Tensor:
            weight, chosen = self.gate(x).softmax(1).max(1)
            out = x.new_zeros(len(x), 4)
            for at, expert in enumerate(self.experts):
                mine = chosen == at
                if mine.any():
                    out[mine] = expert(x[mine]) * weight[mine].unsqueeze(1)
            return out

    model = Experts()
    return fit(model, torch.optim.Adam(model.parameters(), lr=3e-3), *data.blobs(), 250)


@healthy()
def heads_in_turn() -> sg.TrainingDebugger:
    """Two tasks on one body, one batch each in turn, losses of quite different size."""
    body, classify, measure = mlp(20, 64, 64), nn.Linear(64, 4), nn.Linear(64, 1)
    model = nn.ModuleDict({"body": body, "classify": classify, "measure": measure})
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    x, y = data.blobs()
    size = 10 * x[:, :1] + 5 * torch.randn(512, 1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i in range(600):
            at = torch.randint(0, 512, (32,))
            h = torch.relu(body(x[at]))
            loss = F.mse_loss(measure(h), size[at]) if i % 2 else F.cross_entropy(classify(h), y[at])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def heads_in_turn_one_hard() -> sg.TrainingDebugger:
    """Two tasks in turn, one of which can hardly be learned and has the larger loss."""
    body, easy, hard = mlp(20, 32, 32), nn.Linear(32, 4), nn.Linear(32, 1)
    model = nn.ModuleDict({"body": body, "easy": easy, "hard": hard})
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    x, y = data.blobs()
    noise = 5 * torch.randn(512, 1) + x[:, :1]
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i in range(600):
            at = torch.randint(0, 512, (64,))
            h = torch.relu(body(x[at]))
            loss = F.mse_loss(hard(h), noise[at]) if i % 2 else F.cross_entropy(easy(h), y[at])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch
