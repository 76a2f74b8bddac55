"""Healthy: losses that do not simply fall to zero: generative, contrastive, physical, adversarial, reinforced."""

from __future__ import annotations

import copy
from collections import deque

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import healthy


@healthy()
def domain_adversarial() -> sg.TrainingDebugger:
    """A gradient-reversal layer: the domain loss is meant to stay at log 2."""

    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            return -0.3 * grad

    x, y = data.blobs()
    body, label, domain = mlp(20, 32, 32), nn.Linear(32, 4), mlp(32, 16, 1)
    model = nn.ModuleList([body, label, domain])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 400):
            source, target = torch.relu(body(xb)), torch.relu(body(xb + 0.5))
            both = domain(Reverse.apply(torch.cat([source, target]))).squeeze(1)
            which = torch.cat([torch.zeros(len(xb)), torch.ones(len(xb))])
            loss = F.cross_entropy(label(source), yb) + F.binary_cross_entropy_with_logits(both, which)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def contrastive() -> sg.TrainingDebugger:
    """SimCLR: two noisy views, cross-entropy over the batch; starts at about log of the batch."""
    x, _ = data.blobs(1000, 20, 8)
    model = mlp(20, 64, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 300, 64):
            a = F.normalize(model(xb + 0.3 * torch.randn_like(xb)), dim=1)
            b = F.normalize(model(xb + 0.3 * torch.randn_like(xb)), dim=1)
            loss = F.cross_entropy(a @ b.T / 0.2, torch.arange(64))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def momentum_contrast() -> sg.TrainingDebugger:
    """MoCo: negatives from a queue of old keys that fills up, so that the loss rises at first."""
    x, _ = data.blobs(1000, 20, 8)
    query = mlp(20, 64, 16)
    key = copy.deepcopy(query).requires_grad_(False)
    optimizer = torch.optim.SGD(query.parameters(), lr=0.05, momentum=0.9)
    queue: deque[Tensor] = deque(maxlen=16)
    with sg.watch(query, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 400, 32):
            q = F.normalize(query(xb + 0.3 * torch.randn_like(xb)), dim=1)
            with torch.no_grad():
                for slow, fast in zip(key.parameters(), query.parameters(), strict=True):
                    slow.lerp_(fast, 0.01)
                k = F.normalize(key(xb + 0.3 * torch.randn_like(xb)), dim=1)
            negatives = torch.cat(list(queue)) if queue else k.roll(1, 0)[:1]
            logits = torch.cat([(q * k).sum(1, keepdim=True), q @ negatives.T], 1) / 0.2
            loss = F.cross_entropy(logits, torch.zeros(32, dtype=torch.long))
            queue.append(k)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def bootstrap_your_own_latent() -> sg.TrainingDebugger:
    """BYOL: negative cosine to a slow copy, from 0 towards -1."""
    x, _ = data.blobs(1000, 20, 8)
    online, predict = mlp(20, 64, 16), mlp(16, 32, 16)
    target = copy.deepcopy(online).requires_grad_(False)
    model = nn.ModuleList([online, predict])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 400, 64):
            guess = predict(online(xb + 0.3 * torch.randn_like(xb)))
            loss = -F.cosine_similarity(guess, target(xb + 0.3 * torch.randn_like(xb))).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                    slow.lerp_(fast, 0.01)
    return watch


@healthy()
def triplets() -> sg.TrainingDebugger:
    """Triplet margin loss on separable classes: many batches have a loss of exactly zero in the end."""
    x, y = data.blobs(400, 10, 5, spread=0.3)
    model = mlp(10, 32, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.TripletMarginLoss(margin=1.0)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        by_class = [x[y == c] for c in range(5)]
        for _ in range(400):
            classes = torch.randint(0, 5, (16,))
            other = (classes + torch.randint(1, 5, (16,))) % 5
            pick = [torch.stack([by_class[c][torch.randint(0, len(by_class[c]), ())] for c in who.tolist()])
                    for who in (classes, classes, other)]  # fmt: skip
            loss = loss_fn(*(model(p) for p in pick))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def physics_informed() -> sg.TrainingDebugger:
    """u'' = -u with two boundary values, derivatives by autograd."""
    model = mlp(1, 32, 32, 1, activation=nn.Tanh)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(250):
            t = (3.0 * torch.rand(64, 1)).requires_grad_(True)
            u = model(t)
            (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
            (ddu,) = torch.autograd.grad(du.sum(), t, create_graph=True)
            zero = torch.zeros(1, 1, requires_grad=True)
            u0 = model(zero)
            (du0,) = torch.autograd.grad(u0.sum(), zero, create_graph=True)
            loss = (ddu + u).pow(2).mean() + 10 * (u0 - 1).pow(2).mean() + 10 * du0.pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def matrix_factorisation() -> sg.TrainingDebugger:
    """Ratings from two embeddings and their biases, weight decay on top."""
    users, items = torch.randint(0, 200, (3000,)), torch.randint(0, 100, (3000,))
    taste, kind = torch.randn(200, 3), torch.randn(100, 3)
    rating = 3 + 0.5 * (taste[users] * kind[items]).sum(1) + 0.3 * torch.randn(3000)
    model = nn.ModuleList([nn.Embedding(200, 8), nn.Embedding(100, 8), nn.Embedding(200, 1), nn.Embedding(100, 1)])
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0, weight_decay=1e-5)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for at, _ in data.batches(torch.arange(3000), users, 500, 64):
            u, i = users[at], items[at]
            guess = (0.3 * model[0](u) * model[1](i)).sum(1) + (model[2](u) + model[3](i)).squeeze(1)
            optimizer.zero_grad()
            F.mse_loss(guess, rating[at]).backward()
            optimizer.step()
    return watch


@healthy()
def word2vec() -> sg.TrainingDebugger:
    """Skip-gram with negative samples: tiny initial vectors, so that it starts exactly at (1 + 5) log 2."""
    tokens, kinds = data.text()
    centre, context = nn.Embedding(kinds, 16), nn.Embedding(kinds, 16)
    nn.init.uniform_(centre.weight, -0.5 / 16, 0.5 / 16)
    nn.init.zeros_(context.weight)
    model = nn.ModuleList([centre, context])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(400):
            at = torch.randint(2, len(tokens) - 2, (64,))
            c, good = centre(tokens[at]), context(tokens[at + 1])
            bad = context(torch.randint(0, kinds, (64, 5)))
            loss = F.softplus(-(c * good).sum(1)).mean() + F.softplus((bad @ c.unsqueeze(2)).squeeze(2)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def distillation() -> sg.TrainingDebugger:
    x, y = data.blobs()
    teacher, student = mlp(20, 128, 4), mlp(20, 8, 4)
    optimizer = torch.optim.Adam(teacher.parameters(), lr=3e-3)
    for xb, yb in data.batches(x, y, 200):
        optimizer.zero_grad()
        F.cross_entropy(teacher(xb), yb).backward()
        optimizer.step()
    optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
    with sg.watch(student, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, y, 400):
            with torch.no_grad():
                soft = F.softmax(teacher(xb) / 4, 1)
            loss = 16 * F.kl_div(F.log_softmax(student(xb) / 4, 1), soft, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def ctc() -> sg.TrainingDebugger:
    """Connectionist temporal classification: falls at once, then blanks only for a while, then it learns."""
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 6), nn.LogSoftmax(-1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    lengths_in, lengths_out = torch.full((16,), 20), torch.full((16,), 4)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(350):
            target = torch.randint(1, 6, (16, 4))
            x = F.one_hot(target.repeat_interleave(5, 1), 6).float() + 0.5 * torch.randn(16, 20, 6)
            out = model(x).transpose(0, 1)
            optimizer.zero_grad()
            F.ctc_loss(out, target, lengths_in, lengths_out).backward()
            optimizer.step()
    return watch


@healthy()
def style_transfer() -> sg.TrainingDebugger:
    """The picture is the parameter: statistics of a frozen net are matched by L-BFGS."""

    class Canvas(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.picture = nn.Parameter(torch.rand(1, 3, 16, 16))

        def forward(self) -> Tensor:
            return self.picture

    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3)).requires_grad_(False)

    def gram(x: Tensor) -> Tensor:
        flat = net(x).flatten(2)
        return flat @ flat.transpose(1, 2) / flat.numel()

    wanted = gram(torch.rand(1, 3, 16, 16) ** 2)
    canvas = Canvas()
    optimizer = torch.optim.LBFGS(canvas.parameters())

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = 1e6 * F.mse_loss(gram(canvas()), wanted)
        loss.backward()
        return loss

    with sg.watch(canvas, optimizer, sinks=[]) as watch:
        for _ in range(20):
            optimizer.step(closure)
    return watch


@healthy()
def gaussian_process() -> sg.TrainingDebugger:
    """Three scalars, fitted by the marginal likelihood of 60 points."""

    class Kernel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log = nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            scale, length, noise = self.log.exp()
            cov = scale * torch.exp(-0.5 * torch.cdist(x, x) ** 2 / length**2) + noise * torch.eye(len(x))
            normal = torch.distributions.MultivariateNormal(torch.zeros(len(x)), cov)
            return -normal.log_prob(y) / len(x)

    x = 6 * torch.rand(60, 1)
    y = torch.sin(2 * x).squeeze(1) + 0.1 * torch.randn(60)
    model = Kernel()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(250):
            optimizer.zero_grad()
            model(x, y).backward()
            optimizer.step()
    return watch


@healthy()
def uncertainty_weighting() -> sg.TrainingDebugger:
    """Kendall's weighting of three tasks by learned variances: the sum goes below zero."""
    x, y = data.regression(noise=0.05)
    model = mlp(10, 64, 3)
    log_var = nn.Parameter(torch.zeros(3))
    model.register_parameter("log_var", log_var)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    targets = torch.cat([y, 0.1 * x[:, :1], 0.02 * x[:, 1:2]], 1)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, targets, 600):
            errors = (model(xb) - yb).pow(2).mean(0)
            loss = (errors * torch.exp(-log_var) + log_var).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch
