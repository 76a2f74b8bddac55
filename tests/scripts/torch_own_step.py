"""Optimizers of its own: one from the base class, and one that wraps SGD."""

# run: status=healthy steps=8+8
# when: thorough

import torch
from torch.optim import SGD, Optimizer


class Sign(Optimizer):
    def __init__(self, params, lr=0.01):
        super().__init__(params, dict(lr=lr))

    def step(self, closure=None):
        loss = closure() if closure is not None else None
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p -= group["lr"] * p.grad.sign()
                    self.state[p]["steps"] = self.state[p].get("steps", 0) + 1
        return loss


class Lookahead(SGD):
    """Every fourth step goes back half of the way."""

    def __init__(self, params, **options):
        super().__init__(params, **options)
        self.slow = [p.detach().clone() for group in self.param_groups for p in group["params"]]
        self.fast = 0

    def step(self):
        super().step()
        self.fast += 1
        if self.fast % 4 == 0:
            with torch.no_grad():
                for group in self.param_groups:
                    for p, slow in zip(group["params"], self.slow):
                        slow.lerp_(p, 0.5)
                        p.copy_(slow)


saved = []
for kind, options in ((Sign, {"lr": 0.02}), (Lookahead, {"lr": 0.1, "momentum": 0.5})):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = kind(model.parameters(), **options)
    x = torch.randn(12, 3)
    for _ in range(8):
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        result = optimizer.step()
    print(kind.__name__, f"{loss.item():.5f}", result, type(optimizer).step is kind.step, len(optimizer.state))
    saved.append(optimizer.state_dict())
    saved.append(model.state_dict())
torch.save(saved, "weights.pt")
