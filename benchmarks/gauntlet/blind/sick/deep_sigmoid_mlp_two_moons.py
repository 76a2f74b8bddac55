"""A 8-layer MLP with sigmoid after every layer and default init: gradients shrink by orders of magnitude towards the input and the loss stays at ln 2."""
# expects: gradient-vanishing, loss-plateau
# report: https://e-learn.cn/qa/q-792360.html
import math
import torch
import torch.nn as nn

torch.manual_seed(0)


def moons(n, noise=0.1):
    t = torch.rand(n) * math.pi
    y = (torch.rand(n) < 0.5).long()
    x = torch.where(y[:, None] == 0, torch.stack([t.cos(), t.sin()], 1), torch.stack([1 - t.cos(), 0.5 - t.sin()], 1))
    return x + noise * torch.randn(n, 2), y


layers, width = [], 32
dims = [2] + [width] * 8
for a, b in zip(dims[:-1], dims[1:]):
    layers += [nn.Linear(a, b), nn.Sigmoid()]
layers.append(nn.Linear(width, 2))
model = nn.Sequential(*layers)

x, y = moons(2000)
xt, yt = moons(500)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(12):
    for idx in torch.randperm(len(x)).split(64):
        opt.zero_grad()
        loss = loss_fn(model(x[idx]), y[idx])
        loss.backward()
        opt.step()
    with torch.no_grad():
        acc = (model(xt).argmax(1) == yt).float().mean()
    if epoch % 2 == 1:
        print(f"epoch {epoch+1}: loss {loss.item():.4f} test acc {acc:.3f}")
