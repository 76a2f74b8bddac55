"""Sick: losses, learning rates, decay, initialisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients import data
from patients.healthy_basics import fit, mlp
from patients.healthy_models import CharTransformer, convnet, pretrained
from patients.register import sick

NONFINITE = ("nonfinite-loss", "nonfinite-gradient", "nonfinite-parameter")
DIVERGED = ("lr-too-high", "loss-explosion", "gradient-explosion", *NONFINITE)


@sick("weight-decay-dominates")
def adamw_decay_of_ten() -> sg.TrainingDebugger:
    """Decay of 10 at 0.03: a third of each weight goes at every step."""
    model = convnet()
    return fit(model, torch.optim.AdamW(model.parameters(), lr=0.03, weight_decay=10.0), *data.images(noise=2.0), 300)


@sick("weight-decay-dominates", "loss-plateau")
def sgd_decay_of_one() -> sg.TrainingDebugger:
    """L2 of 1.0 in SGD: the weights go to zero, the loss to log(10)."""
    model = convnet()
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=1.0), *data.images(), 300)


@sick("weight-decay-dominates", "loss-plateau")
def decay_after_training() -> sg.TrainingDebugger:
    """A pretrained model, fine-tuned at 1e-4 with a decay of 100 by mistake: it forgets."""
    model, x, y = pretrained()
    return fit(model, torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=200.0), x, y, 500)


@sick("bad-initialization", "gradient-vanishing", "loss-plateau")
def weights_too_small() -> sg.TrainingDebugger:
    """std 1e-4 in every layer."""
    model = mlp(20, 64, 64, 64, 4)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=1e-4)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.05), *data.blobs(), 300)


@sick("bad-initialization")
def weights_too_large() -> sg.TrainingDebugger:
    """`torch.randn` without scaling for every matrix of a wide net, times ten."""
    model = mlp(20, 100, 100, 4)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=10.0)
    return fit(model, torch.optim.Adam(model.parameters(), lr=1e-3), *data.blobs(), 250)


@sick("bad-initialization")
def randn_weights() -> sg.TrainingDebugger:
    """The plain `nn.Parameter(torch.randn(...))` in a net of 256 wide layers: gain 16."""
    model = mlp(64, 256, 256, 10)
    for layer in model:
        if isinstance(layer, nn.Linear):
            layer.weight = nn.Parameter(torch.randn_like(layer.weight))
    return fit(model, torch.optim.SGD(model.parameters(), lr=1e-3), *data.blobs(512, 64, 10), 200)


@sick("bad-initialization", "loss-plateau")
def weights_all_alike() -> sg.TrainingDebugger:
    """Every weight is 0.1."""
    model = mlp(20, 64, 64, 4)
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.constant_(layer.weight, 0.1)
    return fit(model, torch.optim.Adam(model.parameters()), *data.blobs(), 250)


@sick("bad-initialization", "loss-plateau", "gradient-vanishing")
def weights_all_zero() -> sg.TrainingDebugger:
    model = mlp(20, 64, 64, 4)
    for p in model.parameters():
        nn.init.zeros_(p)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.1), *data.blobs(), 300)


def memorise(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, epochs: int
) -> sg.TrainingDebugger:
    loss_fn = nn.MSELoss() if y.is_floating_point() else nn.CrossEntropyLoss()
    half = len(x) // 2
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(epochs):
            model.train()
            for xb, yb in data.loader(x[:half], y[:half]):
                optimizer.zero_grad()
                loss_fn(model(xb), yb).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                watch.validate(loss_fn(model(x[half:]), y[half:]))
    return watch


@sick("overfitting")
def small_data_large_model() -> sg.TrainingDebugger:
    """200 points with noisy labels, a wide net, 40 epochs."""
    x, y = data.blobs(400, 20, 4, spread=2.0)
    model = mlp(20, 256, 256, 4)
    return memorise(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y, 40)


@sick("overfitting")
def convnet_learns_by_heart() -> sg.TrainingDebugger:
    x, y = data.images(256, noise=2.0)
    y[torch.rand(256) < 0.4] = 0
    model = convnet()
    return memorise(model, torch.optim.Adam(model.parameters(), lr=1e-2), x, y, 40)


@sick("overfitting")
def regression_learns_noise() -> sg.TrainingDebugger:
    x, y = data.regression(160, noise=1.0)
    model = mlp(10, 128, 128, 1)
    return memorise(model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y, 80)


@sick("overfitting", slow=True)
def language_model_learns_by_heart() -> sg.TrainingDebugger:
    """A small transformer on 800 characters, validated on the rest."""
    tokens, kinds = data.text()
    model = CharTransformer(kinds, width=48)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(16):
            model.train()
            for _ in range(20):
                x, y = data.windows(tokens[:800], 32, 8)
                optimizer.zero_grad()
                F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                x, y = data.windows(tokens[2000:], 32, 32)
                watch.validate(F.cross_entropy(model(x).flatten(0, 1), y.flatten()))
    return watch


@sick("loss-explosion", "lr-too-high", "gradient-explosion", "nonfinite-loss")
def gradient_ascent() -> sg.TrainingDebugger:
    """The loss is maximised: a minus sign in front of a cross-entropy."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 500):
            optimizer.zero_grad()
            (-F.cross_entropy(model(xb), yb)).backward()
            optimizer.step()
    return watch


@sick("loss-explosion", "lr-too-high", "gradient-explosion", "nonfinite-loss")
def update_with_wrong_sign() -> sg.TrainingDebugger:
    """`p += lr * p.grad`."""
    x, y = data.regression()
    model = mlp(10, 64, 1)
    with sg.watch(model, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 200):
            model.zero_grad()
            F.mse_loss(model(xb), yb).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(0.05 * p.grad)
    return watch


@sick("loss-explosion", "gradient-explosion", "nonfinite-loss")
def nll_of_raw_scores() -> sg.TrainingDebugger:
    """NLLLoss without log_softmax: it can be lowered without end."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 600):
            optimizer.zero_grad()
            F.nll_loss(model(xb), yb).backward()
            optimizer.step()
    return watch


@sick("loss-explosion", "gradient-explosion", "nonfinite-loss", "nonfinite-gradient")
def critic_without_constraint() -> sg.TrainingDebugger:
    """A Wasserstein critic without clipping or penalty."""
    critic = mlp(2, 64, 64, 1)
    optimizer = torch.optim.Adam(critic.parameters(), lr=5e-3)
    x, _ = data.spirals()
    with sg.watch(critic, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 600):
            optimizer.zero_grad()
            (critic(torch.randn(32, 2)).mean() - critic(xb + 2).mean()).backward()
            optimizer.step()
    return watch


@sick("loss-explosion", "lr-too-high", "gradient-explosion", "nonfinite-loss")
def policy_gradient_runs_off() -> sg.TrainingDebugger:
    """The value function learns from its own, not detached, ever growing prediction."""
    model = mlp(4, 64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(400):
            state = torch.randn(32, 4)
            with torch.no_grad():
                goal = 1 + 1.5 * model(state + 0.1)
            optimizer.zero_grad()
            F.mse_loss(model(state), goal).backward()
            optimizer.step()
    return watch


@sick("loss-oscillation", "lr-too-high")
def oscillating_regression() -> sg.TrainingDebugger:
    """Full batch, huber loss, a rate beyond the curvature: it goes from wall to wall without diverging."""
    x = 4 * torch.randn(200, 3)
    y = x @ torch.tensor([[0.5], [1.0], [-1.0]])
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.5)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(400):
            optimizer.zero_grad()
            F.huber_loss(model(x), y).backward()
            optimizer.step()
    return watch


@sick("loss-oscillation", "lr-too-high", "loss-spike")
def swinging_classifier() -> sg.TrainingDebugger:
    """SGD at a rate that flips the prediction between two classes at each step."""
    x = torch.randn(128, 2) + 8
    y = (torch.arange(128) % 2).float().unsqueeze(1)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(400):
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(x), y).backward()
            optimizer.step()
    return watch


@sick("loss-spike", "gradient-explosion", "lr-too-high")
def repeated_bad_batches() -> sg.TrainingDebugger:
    """Every 60 steps a batch 30 times too large throws the weights off, and they need some steps to recover."""
    x, y = data.regression()
    model = mlp(10, 64, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (xb, yb) in enumerate(data.batches(x, y, 500)):
            optimizer.zero_grad()
            bad = i % 60 == 59
            F.mse_loss(model(6 * xb if bad else xb), 6 * yb if bad else yb).backward()
            optimizer.step()
    return watch


@sick("loss-spike", "gradient-explosion")
def adam_spikes() -> sg.TrainingDebugger:
    """beta2 of 0.9999 and a sudden gradient: updates far too large for dozens of steps, again and again."""
    x, y = data.blobs(512, 20, 4, spread=0.5)
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, betas=(0.9, 0.9999))
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for i, (xb, yb) in enumerate(data.batches(x, y, 600)):
            optimizer.zero_grad()
            wrong = i % 100 == 99
            loss = F.cross_entropy(model(3 * xb if wrong else xb), (yb + 1) % 4 if wrong else yb)
            loss.backward()
            optimizer.step()
    return watch


@sick("loss-plateau", "gradient-vanishing")
def dead_relus() -> sg.TrainingDebugger:
    """Biases of -10: no unit fires on any sample."""
    model = mlp(20, 64, 64, 4)
    with torch.no_grad():
        model[0].bias.fill_(-30.0)
        model[2].bias.fill_(-30.0)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.01), *data.blobs(), 300)


@sick("loss-plateau")
def labels_shuffled() -> sg.TrainingDebugger:
    """Inputs are shuffled, labels are not: nothing to learn but the class frequencies."""
    x, y = data.blobs(4000, 20, 10)
    model = mlp(20, 32, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(1200):
            at = torch.randint(0, 4000, (64,))
            optimizer.zero_grad()
            F.cross_entropy(model(x[at]), y[torch.randint(0, 4000, (64,))]).backward()
            optimizer.step()
    return watch


@sick("loss-plateau")
def optimizer_of_another_model() -> sg.TrainingDebugger:
    """The model was rebuilt after the optimizer had been made: gradients flow, nothing changes."""
    x, y = data.blobs()
    model = mlp(20, 64, 4)
    optimizer = torch.optim.Adam(model.parameters())
    model = mlp(20, 64, 4)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(12):
            for xb, yb in data.loader(x, y):
                optimizer.zero_grad()
                F.cross_entropy(model(xb), yb).backward()
                optimizer.step()
    return watch


@sick("update-ratio-high", "lr-too-high", "loss-oscillation")
def clipped_critic_too_fast() -> sg.TrainingDebugger:
    """The first WGAN's recipe, weights clamped to 0.01, with RMSprop at 0.05: every step flips them."""
    x, _ = data.spirals()
    critic = mlp(2, 64, 64, 1)
    optimizer = torch.optim.RMSprop(critic.parameters(), lr=0.05)
    with sg.watch(critic, optimizer, sinks=[]) as watch:
        for xb, _ in data.batches(x, x, 300):
            optimizer.zero_grad()
            (critic(torch.randn(32, 2)).mean() - critic(xb).mean()).backward()
            optimizer.step()
            with torch.no_grad():
                for p in critic.parameters():
                    p.clamp_(-0.01, 0.01)
    return watch


@sick("update-ratio-high", "lr-too-high", "loss-plateau")
def normalised_prototypes_too_fast() -> sg.TrainingDebugger:
    """Prototypes set back to length 1 after each step, in a group whose rate turns them round each time."""
    x, y = data.blobs(512, 20, 10, spread=2.0)
    body, heads = mlp(20, 64, 64, 16), nn.Linear(16, 10, bias=False)
    model = nn.Sequential(body, heads)
    optimizer = torch.optim.SGD([{"params": heads.parameters(), "lr": 300.0}, {"params": body.parameters()}], lr=1e-2)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 300):
            optimizer.zero_grad()
            F.cross_entropy(heads(F.normalize(body(xb), dim=1)) / 0.1, yb).backward()
            optimizer.step()
            with torch.no_grad():
                heads.weight.copy_(F.normalize(heads.weight, dim=1))
    return watch


@sick("update-ratio-high", "lr-too-high", "loss-explosion")
def tiny_layer_thrown_about() -> sg.TrainingDebugger:
    """A layer with weights of 1e-3 after a large input scale, with sign-like updates of 1e-2."""
    x, y = data.blobs()
    model = mlp(20, 64, 64, 64, 4)
    nn.init.normal_(model[2].weight, std=1e-5)
    with torch.no_grad():
        model[4].weight.mul_(1e3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for xb, yb in data.batches(x, y, 300):
            optimizer.zero_grad()
            F.cross_entropy(model(xb), yb).backward()
            optimizer.step()
    return watch


@sick("update-ratio-low")
def one_layer_hardly_moves() -> sg.TrainingDebugger:
    """Adam, and a layer whose weights are a million times too large for its rate, scaled down again behind it."""
    x, y = data.blobs()

    class Scale(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 1e-6

    layers = [nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), Scale(), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(64, 4))
    with torch.no_grad():
        model[2].weight.mul_(1e6)
    return fit(model, torch.optim.Adam(model.parameters()), x, y, 300)


@sick("update-ratio-low", "gradient-vanishing")
def adapter_without_effect() -> sg.TrainingDebugger:
    """The gradient of the first layer is multiplied by 1e-9 by mistake (a mask that was meant for something else)."""
    x, y = data.blobs()
    model = mlp(20, 64, 64, 64, 4)
    model[0].weight.register_hook(lambda grad: grad * 1e-9)
    return fit(model, torch.optim.SGD(model.parameters(), lr=0.05), x, y, 300)
