"""PGD adversarial training: inner loop takes gradients with respect to the inputs in eval mode, then one train-mode step on the perturbed batch, so modes flip every step and the net runs five times per update."""
# expects:
# source: https://arxiv.org/abs/1706.06083
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
yy, xx = torch.meshgrid(torch.arange(10.), torch.arange(10.), indexing="ij")


def images(n):
    y = torch.randint(0, 3, (n,))
    c = torch.rand(n, 2, 1, 1) * 3 + 3
    dx, dy = (xx - c[:, 0]).abs(), (yy - c[:, 1]).abs()
    plus = ((dx < 0.8) & (dy < 3)) | ((dy < 0.8) & (dx < 3))
    box = ((dx < 3) & (dy < 3)) & ~((dx < 2) & (dy < 2))
    cross = ((dx - dy).abs() < 0.8) & (dx < 3)
    img = torch.stack([plus, box, cross], 1)[torch.arange(n), y].float()
    return (img * 0.8 + 0.1 + 0.05 * torch.randn(n, 10, 10)).clamp(0, 1).unsqueeze(1), y


def pgd(model, x, y, eps=0.15, alpha=0.06, steps=4):
    delta = torch.empty_like(x).uniform_(-eps, eps)
    for _ in range(steps):
        delta.requires_grad_(True)
        loss = F.cross_entropy(model((x + delta).clamp(0, 1)), y)
        (g,) = torch.autograd.grad(loss, delta)
        delta = (delta.detach() + alpha * g.sign()).clamp(-eps, eps)
    return (x + delta).clamp(0, 1).detach()


net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 25, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, weight_decay=2e-4)
Xt, Yt = images(300)
for step in range(1, 161):
    x, y = images(48)
    net.eval()
    x_adv = pgd(net, x, y)
    net.train()
    loss = F.cross_entropy(net(x_adv), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        net.eval()
        clean = (net(Xt).argmax(1) == Yt).float().mean().item()
        rob = (net(pgd(net, Xt, Yt, steps=8)).argmax(1) == Yt).float().mean().item()
        print(f"step {step} adv loss {loss.item():.3f} clean acc {clean:.3f} robust acc {rob:.3f}")
