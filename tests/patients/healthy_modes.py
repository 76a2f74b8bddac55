"""Healthy: modes that are switched in time, or left alone on purpose."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, update_bn

import seismograd as sg
from patients import data
from patients.register import healthy
from patients.sick_modes import accuracy, copied, dropped, fit_functional, learned, loaders, normed


@healthy()
def evaluation_in_the_middle() -> sg.TrainingDebugger:
    """Every seven steps an evaluation in evaluation mode, and back."""
    train, val = loaders(*data.blobs())
    model = dropped()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(5):
            for x, y in train:  # type: ignore[misc]
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                step += 1
                if step % 7 == 0:
                    model.eval()
                    accuracy(model, val)
                    model.train()
    return watch


@healthy()
def frozen_batch_norm() -> sg.TrainingDebugger:
    """Fine-tuning with all norms in evaluation mode, their scales trained: as in detection."""
    model, x, y = learned()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        model.train()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        for xb, yb in data.batches(0.5 * x, y, 80):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def linear_probe_in_eval_mode() -> sg.TrainingDebugger:
    """A new head on frozen features; the whole model in evaluation mode, on purpose."""
    model, x, y = learned()
    model.requires_grad_(False).eval()
    model[-1] = nn.Linear(16, 10)
    optimizer = torch.optim.Adam(model[-1].parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(0.3 * x - 0.5, 9 - y, 80):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def frozen_backbone_in_eval_mode() -> sg.TrainingDebugger:
    model, x, y = learned()
    backbone, head = model[:-1].requires_grad_(False), nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 10))
    whole = nn.Sequential(backbone, head)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    with sg.watch(whole, optimizer, sinks=[]) as watch:
        whole.train()
        backbone.eval()
        for xb, yb in data.batches(0.3 * x - 0.5, y, 80):
            optimizer.zero_grad()
            F.cross_entropy(whole(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def teacher_of_averages_in_train_mode() -> sg.TrainingDebugger:
    """A mean teacher with batch norm: frozen, in training mode, moved by hand."""
    x, y = data.images()
    student = normed()
    teacher = copied(student)
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    with sg.watch(student, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 80):
            with torch.no_grad():
                target = teacher(xb + 0.1 * torch.randn_like(xb)).softmax(-1)
            out = student(xb)
            loss = F.cross_entropy(out, yb) + F.mse_loss(out.softmax(-1), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for ours, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                ours.data.mul_(0.99).add_(theirs.data, alpha=0.01)
    return watch


@healthy()
def averaged_weights_with_new_statistics() -> sg.TrainingDebugger:
    """Stochastic weight averaging: `update_bn` runs the loader through the model in training mode."""
    train, val = loaders(*data.images())
    model = normed()
    averaged = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(4):
            for x, y in train:  # type: ignore[misc]
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            averaged.update_parameters(model)
            update_bn(train, averaged)
            update_bn(val, model)
            averaged.eval()
            accuracy(averaged, val)
    return watch


@healthy()
def dropout_as_doubt() -> sg.TrainingDebugger:
    """Monte Carlo dropout: the same held-out rows thirty times, in training mode."""
    x, y = data.regression(400)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    held_out = x[300:]
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x[:300], y[:300], 100)):
            optimizer.zero_grad()
            F.mse_loss(model(xb), yb).backward()
            optimizer.step()
            if step % 25 == 24:
                with torch.no_grad():
                    torch.stack([model(held_out) for _ in range(30)]).std(0)
    return watch


@healthy()
def previews_in_train_mode() -> sg.TrainingDebugger:
    """The DCGAN tutorial: pictures from fixed noise, the generator in training mode as ever."""
    x, _ = data.images(256, size=8)
    generator = nn.Sequential(
        nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.Unflatten(1, (1, 8, 8))
    )
    critic = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(32, 1))
    first = torch.optim.Adam(generator.parameters(), lr=1e-3)
    second = torch.optim.Adam(critic.parameters(), lr=1e-3)
    fixed = torch.randn(16, 8)
    with sg.watch(nn.ModuleList([generator, critic]), [first, second], sinks=[]) as watch:
        for step in range(80):
            real = x[torch.randint(0, 256, (32,))]
            with torch.no_grad():
                fake = generator(torch.randn(32, 8))
            ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
            bce = F.binary_cross_entropy_with_logits
            second.zero_grad()
            (bce(critic(real), ones) + bce(critic(fake), zeros)).backward()
            second.step()
            first.zero_grad()
            bce(critic(generator(torch.randn(32, 8))), ones).backward()
            first.step()
            if step % 10 == 9:
                with torch.no_grad():
                    generator(fixed)
    return watch


@healthy()
def attack_in_eval_mode() -> sg.TrainingDebugger:
    """Adversarial training: the attack is made in evaluation mode, the step in training mode."""
    x, y = data.blobs()
    model = dropped()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 60):
            model.eval()
            moved = xb.clone().requires_grad_()
            F.cross_entropy(model(moved), yb).backward()
            assert moved.grad is not None
            attack = (xb + 0.05 * moved.grad.sign()).detach()
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(attack), yb).backward()
            optimizer.step()
    return watch


@healthy()
def picture_optimised_afterwards() -> sg.TrainingDebugger:
    """A trained model in evaluation mode, and a picture that excites it: only the picture changes."""
    x, y = data.images()
    model = normed()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 60):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
        model.eval()
        picture = torch.zeros(1, 1, 12, 12, requires_grad=True)
        ascent = torch.optim.Adam([picture], lr=0.05)
        for _ in range(30):
            ascent.zero_grad()
            (-model(picture)[0, 3]).backward()
            ascent.step()
    return watch


@healthy()
def hard_examples_first() -> sg.TrainingDebugger:
    """Losses of a large batch without gradients, then a step on its hardest half; dropout is live in both."""
    train, _ = loaders(*data.blobs())
    model = dropped()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(5):
            for x, y in train:  # type: ignore[misc]
                with torch.no_grad():
                    losses = F.cross_entropy(model(x), y, reduction="none")
                hard = losses.topk(len(x) // 2).indices
                optimizer.zero_grad()
                F.cross_entropy(model(x[hard]), y[hard]).backward()
                optimizer.step()
    return watch


@healthy()
def text_written_in_train_mode() -> sg.TrainingDebugger:
    """A character model with dropout that writes a line now and then, without a change of mode."""
    tokens, kinds = data.text()

    class Writer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn = nn.Embedding(kinds, 16), nn.GRU(16, 32, batch_first=True)
            self.drop, self.head = nn.Dropout(0.1), nn.Linear(32, kinds)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.drop(self.rnn(self.embed(x))[0]))
            return out

    model = Writer()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step in range(60):
            x, y = data.windows(tokens, 16, 16)
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            optimizer.step()
            if step % 20 == 19:
                line = tokens[:1].unsqueeze(0)
                with torch.no_grad():
                    for _ in range(20):
                        line = torch.cat([line, model(line)[:, -1:].argmax(-1)], 1)
    return watch


@healthy()
def norms_alone_adapted() -> sg.TrainingDebugger:
    """Only the norms are trained, on new pictures; everything else is frozen."""
    model, x, y = learned()
    model.requires_grad_(False)
    norms = [module for module in model if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.requires_grad_(True)
    optimizer = torch.optim.Adam([p for norm in norms for p in norm.parameters()], lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(0.3 * x - 0.5, y, 80):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def critic_frozen_in_turn() -> sg.TrainingDebugger:
    """A GAN that freezes its critic, batch norm and all, while the generator learns."""
    x, _ = data.images(256, size=8)
    generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.Unflatten(1, (1, 8, 8)))
    critic = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    first = torch.optim.Adam(generator.parameters(), lr=1e-3)
    second = torch.optim.Adam(critic.parameters(), lr=1e-3)
    with sg.watch(nn.ModuleList([generator, critic]), [first, second], sinks=[]) as watch:
        for _ in range(60):
            real, fake = x[torch.randint(0, 256, (32,))], generator(torch.randn(32, 8))
            critic.requires_grad_(True)
            loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
            second.zero_grad()
            loss.backward()
            second.step()
            critic.requires_grad_(False)
            first.zero_grad()
            F.softplus(-critic(fake)).mean().backward()
            first.step()
    return watch


@healthy()
def functional_dropout_with_the_mode() -> sg.TrainingDebugger:
    return fit_functional("told")


@healthy()
def functional_dropout_always_on() -> sg.TrainingDebugger:
    """A Bayesian net: `training=True` in so many words."""
    return fit_functional("meant")
