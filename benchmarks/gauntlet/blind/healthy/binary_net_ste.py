"""Binarised hidden layer (sign with straight-through estimator and clipped latent weights): activations are only +-1 and forward weights +-1, all intended."""
# expects:
# source: https://arxiv.org/abs/1602.02830
import torch
import torch.nn as nn
import torch.nn.functional as F


class SignSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() <= 1).float()


class BinaryLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, SignSTE.apply(self.weight)) / self.in_features ** 0.5


class BNN(nn.Module):
    def __init__(self, d, h, k):
        super().__init__()
        self.inp = nn.Linear(d, h, bias=False)
        self.b1 = nn.BatchNorm1d(h)
        self.hid = BinaryLinear(h, h, bias=False)
        self.b2 = nn.BatchNorm1d(h)
        self.out = nn.Linear(h, k)

    def forward(self, x):
        x = SignSTE.apply(self.b1(self.inp(x)))
        x = SignSTE.apply(self.b2(self.hid(x)))
        return self.out(x)


torch.manual_seed(1)
cent = torch.randn(6, 2, 16) * 1.2


def data(n):
    y = torch.randint(0, 6, (n,))
    return cent[y, torch.randint(0, 2, (n,))] + 0.8 * torch.randn(n, 16), y


X, Y = data(4000)
Xt, Yt = data(1000)
net = BNN(16, 128, 6)
nn.init.uniform_(net.hid.weight, -0.3, 0.3)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(8):
    net.train()
    for b in torch.randperm(4000).split(80):
        loss = F.cross_entropy(net(X[b]), Y[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            net.hid.weight.clamp_(-1, 1)
    net.eval()
    with torch.no_grad():
        print(f"epoch {epoch} loss {loss.item():.3f} test acc {(net(Xt).argmax(1) == Yt).float().mean():.3f}")
