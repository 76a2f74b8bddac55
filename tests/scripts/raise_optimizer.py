"""An optimizer of one's own, whose sixth step divides by zero."""

# exit: 1
# stderr: ZeroDivisionError: float division by zero
# run: status=crashed steps=5
# when: thorough

import torch
from torch.optim import Optimizer


class Warmdown(Optimizer):
    """SGD whose step grows until there is nothing left to divide by."""

    def __init__(self, params, lr=0.1, total=5):
        super().__init__(params, {"lr": lr, "total": total})
        self.left = total

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            scale = group["lr"] / (group["total"] * self.left)
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-scale)
        self.left -= 1


torch.manual_seed(11)
x = torch.randn(50, 2)
layer = torch.nn.Linear(2, 2)
opt = Warmdown(layer.parameters())
for i in range(10):
    opt.zero_grad()
    loss = (layer(x) - x).abs().mean()
    loss.backward()
    opt.step()
    print(i, opt.left, f"{loss.item():.5f}")
    torch.save(layer.state_dict(), "weights.pt")
