"""Healthy: parts that are left out, cut off, frozen or unused on purpose."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import seismograd as sg
from patients import data
from patients.healthy_basics import mlp
from patients.register import healthy
from patients.sick_membership import Classifier, fit


@healthy()
def lazy_linear_probe() -> sg.TrainingDebugger:
    """Only the head is in the optimizer; the backbone gets gradients for nothing."""
    model = Classifier()
    return fit(model, torch.optim.Adam(model.head.parameters(), lr=1e-2))


@healthy()
def prompt_tuning() -> sg.TrainingDebugger:
    """What is trained stands before everything else, which gets gradients too."""

    class Prompted(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.prompt = nn.Parameter(torch.zeros(8))

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + self.prompt)

    model = Prompted()
    return fit(model, torch.optim.Adam([model.prompt], lr=1e-2))


@healthy()
def perceptual_loss() -> sg.TrainingDebugger:
    """The loss is measured in the features of another network, which nobody froze."""
    x = torch.randn(256, 8)
    model, judge = mlp(8, 32, 8), mlp(8, 32, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch({"model": model, "judge": judge}, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 60):
            made = model(xb + 0.1 * torch.randn_like(xb))
            optimizer.zero_grad()
            (F.mse_loss(judge(made), judge(xb)) + F.mse_loss(made, xb)).backward()
            optimizer.step()
    return watch


@healthy()
def input_made_to_measure() -> sg.TrainingDebugger:
    """An input is optimized against a network that is left in training mode."""
    model, image = mlp(8, 32, 3), nn.Parameter(torch.randn(1, 8))
    optimizer = torch.optim.Adam([image], lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(60):
            optimizer.zero_grad()
            F.cross_entropy(model(image), torch.tensor([1])).backward()
            optimizer.step()
    return watch


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.classes, self.value, self.later = nn.Linear(32, 3), nn.Linear(32, 1), nn.Linear(32, 5)

    def forward(self, x: Tensor, task: str) -> Tensor:
        return getattr(self, task)(self.trunk(x))


@healthy()
def heads_in_phases() -> sg.TrainingDebugger:
    """One task after the other; a head waits for half of the run, another one for the next run."""
    x, y = data.blobs(256, 8, 3)
    model = Heads()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 100)):
            optimizer.zero_grad()
            if step < 50:
                F.cross_entropy(model(xb, "classes"), yb).backward()
            else:
                F.mse_loss(model(xb, "value"), xb[:, :1]).backward()
            optimizer.step()
    return watch


@healthy()
def unused_pooler() -> sg.TrainingDebugger:
    """The encoder also makes what this task does not need, and has a token for another one."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.body, self.pooler = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 32)
            self.mask_token = nn.Parameter(torch.zeros(8))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = F.relu(self.body(F.relu(self.embed(x))))
            return hidden, torch.tanh(self.pooler(hidden))

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = Encoder(), nn.Linear(32, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.encoder(x)[0])

    model = Tagger()
    return fit(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


@healthy()
def auxiliary_head_not_used() -> sg.TrainingDebugger:
    """A head in the middle of the network whose output this loss leaves out."""

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.side, self.last = mlp(8, 32, 32), nn.Linear(32, 3), nn.Linear(32, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = F.relu(self.first(x))
            side = self.side(hidden)
            return self.last(hidden), side

    class Main(Deep):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x)[0]

    model = Main()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3))


@healthy()
def extractor_without_gradients() -> sg.TrainingDebugger:
    """A frozen extractor under `no_grad` and in evaluation mode, in the optimizer all the same."""
    x, y = data.blobs(256, 8, 3)
    backbone, head = mlp(8, 32, 32).eval(), nn.Linear(32, 3)
    optimizer = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=1e-2)
    with sg.watch({"backbone": backbone, "head": head}, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 40):
            with torch.no_grad():
                features = backbone(xb)
            optimizer.zero_grad()
            F.cross_entropy(head(features), yb).backward()
            optimizer.step()
    return watch


@healthy()
def critic_on_detached_features() -> sg.TrainingDebugger:
    """The trunk is the policy's; the critic reads its features without a gradient."""
    x, y = data.blobs(256, 8, 3)
    trunk, policy, critic = mlp(8, 32, 32), nn.Linear(32, 3), nn.Linear(32, 1)
    of_policy = torch.optim.Adam([*trunk.parameters(), *policy.parameters()], lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-2)
    models = {"trunk": trunk, "policy": policy, "critic": critic}
    with sg.watch(models, [of_policy, of_critic], sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 80):
            hidden = trunk(xb)
            actions = torch.distributions.Categorical(logits=policy(hidden))
            action = actions.sample()
            reward = (action == yb).float()
            value = critic(hidden.detach()).squeeze(1)
            of_policy.zero_grad()
            (-(actions.log_prob(action) * (reward - value.detach())).mean()).backward()
            of_policy.step()
            of_critic.zero_grad()
            F.mse_loss(value, reward).backward()
            of_critic.step()
    return watch


@healthy()
def target_net_with_a_graph() -> sg.TrainingDebugger:
    """A copy of the network gives targets; nobody detached them, and no optimizer holds it."""
    x, y = data.blobs(256, 8, 3)
    model = mlp(8, 32, 3)
    target = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with sg.watch({"model": model, "target": target}, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 60)):
            wanted = xb[:, 0] + 0.9 * target(xb.roll(1, 0)).amax(1)
            optimizer.zero_grad()
            F.mse_loss(model(xb).gather(1, yb.unsqueeze(1)).squeeze(1), wanted).backward()
            optimizer.step()
            if step % 20 == 0:
                target.load_state_dict(model.state_dict())
    return watch


@healthy()
def updates_by_hand() -> sg.TrainingDebugger:
    """Half of it is in an optimizer; the rest, and a plain tensor, are moved by hand."""

    class Scaled(Classifier):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.ones(1, requires_grad=True)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * self.scale

    x, y = data.blobs(256, 8, 3)
    model = Scaled()
    optimizer = torch.optim.Adam(model.backbone.parameters(), lr=1e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 60):
            model.zero_grad()
            model.scale.grad = None
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
            for parameter in (*model.head.parameters(), model.scale):
                parameter.data -= 0.01 * parameter.grad
    return watch


@healthy()
def straight_through_codes() -> sg.TrainingDebugger:
    class Codes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = mlp(8, 32, 16), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            soft = torch.tanh(self.encoder(x))
            return self.decoder(soft + (torch.sign(soft) - soft).detach())

    model = Codes()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2))


@healthy()
def unfrozen_and_frozen_again() -> sg.TrainingDebugger:
    """The backbone joins the optimizer in the middle of the run, and is frozen again towards its end."""
    x, y = data.blobs(256, 8, 3)
    model = Classifier()
    model.backbone.requires_grad_(False)
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.05, momentum=0.9)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for step, (xb, yb) in enumerate(data.batches(x, y, 80)):
            if step == 20:
                model.backbone.requires_grad_(True)
                optimizer.add_param_group({"params": model.backbone.parameters(), "lr": 0.01})
            if step == 50:
                model.backbone.requires_grad_(False)
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@healthy()
def reentrant_checkpoints() -> sg.TrainingDebugger:
    """The old kind of checkpoint hides its parameters from the graph."""

    class Net(Classifier):
        def forward(self, x: Tensor) -> Tensor:
            hidden = self.backbone[:2](x)
            return self.head(checkpoint(self.backbone[2:], hidden, use_reentrant=True))

    model = Net()
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-2))


@healthy()
def layers_in_a_list_and_the_optimizer() -> sg.TrainingDebugger:
    """A plain list of layers, whose parameters the program gives to the optimizer itself."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 32), nn.Linear(32, 3)
            self.layers = [nn.Linear(32, 32) for _ in range(2)]

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.first(x))
            for layer in self.layers:
                x = F.relu(layer(x))
            return self.last(x)

    model = Net()
    more = [parameter for layer in model.layers for parameter in layer.parameters()]
    return fit(model, torch.optim.Adam([*model.parameters(), *more], lr=1e-2))


@healthy()
def generator_every_fifth_step() -> sg.TrainingDebugger:
    generator, critic = mlp(4, 16, 8), mlp(8, 16, 1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    with sg.watch({"G": generator, "D": critic}, [of_generator, of_critic], sinks=[]) as watch:
        for step in range(100):
            fake, real = generator(torch.randn(32, 4)), torch.randn(32, 8) + 2
            of_critic.zero_grad()
            (F.softplus(critic(fake.detach())).mean() + F.softplus(-critic(real)).mean()).backward()
            of_critic.step()
            if step % 5 == 4:
                of_generator.zero_grad()
                F.softplus(-critic(fake)).mean().backward()
                of_generator.step()
    return watch


@healthy()
def reptile_one_step_a_task() -> sg.TrainingDebugger:
    """Meta-learning: each of a few tasks begins at the same weights, which move after all of them."""
    model = mlp(1, 32, 1)
    start = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(20):
            ends = []
            for _ in range(5):
                model.load_state_dict(start)
                x, phase = 6 * torch.rand(32, 1) - 3, 3 * torch.rand(1)
                optimizer.zero_grad()
                F.mse_loss(model(x), torch.sin(x + phase)).backward()
                optimizer.step()
                ends.append(copy.deepcopy(model.state_dict()))
            start = {name: torch.stack([end[name] for end in ends]).mean(0) for name in start}
    return watch
