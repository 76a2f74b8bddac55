"""Optimizers from a paper's repository: a subclass of torch's, a wrapper around one (SAM), and a class of its own."""
# run: status=healthy steps=25+25+25
# when: thorough
import torch
from torch import nn
from torch.optim import Optimizer


class Lion(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99)):
        super().__init__(params, dict(lr=lr, betas=betas))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.add_((b1 * m + (1 - b1) * p.grad).sign(), alpha=-group["lr"])
                m.lerp_(p.grad, 1 - b2)


class SAM(Optimizer):
    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def step(self, closure):
        closure = torch.enable_grad()(closure)
        loss = closure()
        norm = torch.stack([p.grad.norm() for g in self.param_groups for p in g["params"]]).norm()
        for g in self.param_groups:
            for p in g["params"]:
                self.state[p]["e"] = e = p.grad * (g["rho"] / (norm + 1e-12))
                p.add_(e)
        self.zero_grad()
        closure()
        for g in self.param_groups:
            for p in g["params"]:
                p.sub_(self.state[p]["e"])
        self.base.step()
        self.zero_grad()
        return loss


class SignSGD:
    """Not an Optimizer at all."""

    def __init__(self, params, lr):
        self.params, self.lr = list(params), lr

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    def step(self):
        for p in self.params:
            p.data.add_(p.grad.sign(), alpha=-self.lr)


def data():
    torch.manual_seed(0)
    x = torch.randn(128, 6)
    return x, (x @ torch.randn(6, 3)).argmax(1), nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))


x, y, model = data()
opt = Lion(model.parameters(), lr=3e-3)
for _ in range(25):
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("Lion", loss.item())
torch.save(model.state_dict(), "lion.pt")

x, y, model = data()
opt = SAM(model.parameters(), torch.optim.SGD, lr=0.3)
for _ in range(25):
    def closure():
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss
    loss = opt.step(closure)
print("SAM", loss.item())
torch.save(model.state_dict(), "sam.pt")

x, y, model = data()
opt = SignSGD(model.parameters(), lr=3e-3)
for _ in range(25):
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("SignSGD", loss.item())
torch.save(model.state_dict(), "sign.pt")
