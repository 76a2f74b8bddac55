"""Scores of a bilinear attention in half precision, without the division by sqrt(d), pass 65504."""
# op: aten.bmm
# phase: forward
# module: layers.1.attention
# conditions: half model deep-path

import torch
from torch import nn


class Bilinear(nn.Module):
    def __init__(self, dim, gain):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.gain = gain

    def forward(self, x):
        q, k = self.q(x) * self.gain, self.k(x) * self.gain
        scores = torch.bmm(q, k.transpose(1, 2))  # <-- origin
        return torch.bmm(scores.softmax(-1), x)


class Layer(nn.Module):
    def __init__(self, dim, gain):
        super().__init__()
        self.attention = Bilinear(dim, gain)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.norm(x + self.attention(x))


class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.layers = nn.Sequential(Layer(dim, 1.0), Layer(dim, 150.0), Layer(dim, 1.0))
        self.head = nn.Linear(dim, 2)

    def forward(self, x):
        return self.head(self.layers(x).mean(1))


torch.manual_seed(0)
net = Net().to(torch.float16)
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
for step in range(3):
    x = torch.randn(2, 6, 16).half()
    loss = nn.functional.cross_entropy(net(x).float(), torch.tensor([0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
