"""DARTS-like search: weights updated on the train half, architecture alphas on the val half, two optimizers each ignoring the other's gradients (left over grads are cleared before use)."""
# expects:
# source: https://arxiv.org/abs/1806.09055
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
freq = torch.tensor([1.3, 0.7])


def data(n):
    x = torch.rand(n, 2) * 6 - 3
    return x, (torch.sin(freq * x).sum(1, keepdim=True) + 0.05 * torch.randn(n, 1))


OPS = {"zero": lambda x: 0 * x, "identity": lambda x: x, "relu": torch.relu, "sin": torch.sin, "tanh": torch.tanh}


class MixedOp(nn.Module):
    def forward(self, x, w):
        return sum(wi * op(x) for wi, op in zip(w, OPS.values()))


class Net(nn.Module):
    def __init__(self, h=24):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(2, h), nn.Linear(h, h), nn.Linear(h, 1)
        self.mix = MixedOp()
        self.alphas = nn.Parameter(1e-3 * torch.randn(2, len(OPS)))

    def forward(self, x):
        w = self.alphas.softmax(1)
        x = self.mix(self.l1(x), w[0])
        x = self.mix(self.l2(x), w[1])
        return self.l3(x)

    def weights(self):
        return [p for n, p in self.named_parameters() if n != "alphas"]


net = Net()
w_opt = torch.optim.SGD(net.weights(), lr=0.02, momentum=0.9, weight_decay=3e-4)
a_opt = torch.optim.Adam([net.alphas], lr=1e-2, betas=(0.5, 0.999), weight_decay=1e-3)
Xtr, Ytr = data(1500)
Xva, Yva = data(1500)
for step in range(500):
    i = torch.randint(0, 1500, (64,))
    a_opt.zero_grad()
    F.mse_loss(net(Xva[i]), Yva[i]).backward()
    a_opt.step()
    i = torch.randint(0, 1500, (64,))
    w_opt.zero_grad()
    loss = F.mse_loss(net(Xtr[i]), Ytr[i])
    loss.backward()
    nn.utils.clip_grad_norm_(net.weights(), 5.0)
    w_opt.step()
    if step % 100 == 99:
        with torch.no_grad():
            x, y = data(1000)
            ops = [list(OPS)[k] for k in net.alphas.argmax(1).tolist()]
            print(f"{step + 1} train {loss.item():.4f} test {F.mse_loss(net(x), y).item():.4f} genotype {ops}")
