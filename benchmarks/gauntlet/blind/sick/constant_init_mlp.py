"""Every weight matrix is filled with the constant 0.05: all hidden units of a layer are equal and stay equal, the net is as good as one unit wide."""
# expects: bad-initialization, loss-plateau
# report: https://www.codegenes.net/blog/loss-not-decreasing-lstm-pytorch
import torch
import torch.nn as nn
import torch.nn.functional as F


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(sizes, sizes[1:]))
        self.reset()

    def reset(self):
        # reproducible start
        for l in self.layers:
            nn.init.constant_(l.weight, 0.05)
            nn.init.constant_(l.bias, 0.0)

    def forward(self, x):
        for l in self.layers[:-1]:
            x = torch.tanh(l(x))
        return self.layers[-1](x)


class Trainer:
    def __init__(self, model, lr=3e-3):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)

    def fit(self, x, y, epochs, bs=64):
        for ep in range(epochs):
            tot = 0.0
            for idx in torch.randperm(len(x)).split(bs):
                self.opt.zero_grad()
                loss = F.cross_entropy(self.model(x[idx]), y[idx])
                loss.backward()
                self.opt.step()
                tot += loss.item() * len(idx)
            if ep % 3 == 2:
                print(f"epoch {ep+1} loss {tot/len(x):.4f} acc {self.score(x, y):.3f}")

    @torch.no_grad()
    def score(self, x, y):
        return (self.model(x).argmax(1) == y).float().mean().item()


torch.manual_seed(0)
centres = torch.randn(5, 8) * 1.6
y = torch.randint(5, (2560,))
x = centres[y] + torch.randn(2560, 8) * 0.9
Trainer(MLP([8, 48, 48, 5])).fit(x, y, epochs=15)
