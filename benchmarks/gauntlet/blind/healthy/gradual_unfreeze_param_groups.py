"""ULMFiT-style gradual unfreezing: lower layers frozen at first and added to the optimizer with add_param_group and smaller lrs later; lr and trainable set change mid-run."""
# expects:
# source: https://arxiv.org/abs/1801.06146
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
A = torch.randn(12, 24) / 3
P, Q = torch.randn(24, 6), torch.randn(24, 4)


def data(n, W, drift=0.0):
    x = torch.randn(n, 12)
    return x, (torch.tanh(x @ A + drift) @ W).argmax(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Sequential(nn.Linear(12, 64), nn.ReLU())
        self.l2 = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 6)

    def forward(self, x):
        return self.head(self.l2(self.l1(x)))


def evaluate(m, W, drift):
    with torch.no_grad():
        x, y = data(2000, W, drift)
        return (m(x).argmax(1) == y).float().mean().item()


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for i in range(250):
    x, y = data(128, P)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
print(f"pretrained: acc {evaluate(net, P, 0.0):.3f}")

net.head = nn.Linear(64, 4)
for p in net.l1.parameters():
    p.requires_grad = False
for p in net.l2.parameters():
    p.requires_grad = False
opt = torch.optim.Adam(net.head.parameters(), lr=3e-3)
for i in range(450):
    if i == 150:
        for p in net.l2.parameters():
            p.requires_grad = True
        opt.add_param_group({"params": net.l2.parameters(), "lr": 1.5e-3})
        print("unfreezing l2")
    if i == 300:
        for p in net.l1.parameters():
            p.requires_grad = True
        opt.add_param_group({"params": net.l1.parameters(), "lr": 7e-4})
        print("unfreezing l1")
    x, y = data(128, Q, 0.5)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
    if i % 75 == 74:
        print(f"step {i + 1} loss {loss.item():.3f} acc {evaluate(net, Q, 0.5):.3f}")
