"""Sharpness-aware minimisation written by hand: two forward/backward passes per update, weights moved up the gradient and put back between them."""
# expects:
# source: https://github.com/davda54/sam
import torch
import torch.nn as nn
import torch.nn.functional as F


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kw):
        super().__init__(params, dict(rho=rho, **kw))
        self.base_optimizer = base_optimizer(self.param_groups, **kw)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        norm = torch.norm(torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"] if p.grad is not None]))
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * g["rho"] / (norm + 1e-12))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is not None:
                    p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        self.zero_grad()


torch.manual_seed(0)


def two_spirals(n):
    t = torch.rand(n) * 3 + 0.5
    y = torch.randint(0, 2, (n,))
    a = t * 2 + y * torch.pi
    return torch.stack([t * a.cos(), t * a.sin()], 1) / 2 + 0.05 * torch.randn(n, 2), y


X, Y = two_spirals(2000)
Xt, Yt = two_spirals(800)
model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = SAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9)
for epoch in range(16):
    for b in torch.randperm(2000).split(80):
        loss = F.cross_entropy(model(X[b]), Y[b])
        loss.backward()
        optimizer.first_step()
        F.cross_entropy(model(X[b]), Y[b]).backward()
        optimizer.second_step()
    if epoch % 4 == 3:
        with torch.no_grad():
            print(f"epoch {epoch + 1} loss {loss.item():.4f} test acc {(model(Xt).argmax(1) == Yt).float().mean():.3f}")
