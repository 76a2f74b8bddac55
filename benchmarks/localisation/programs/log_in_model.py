"""A mixture of experts adds the entropy of its router; ReLU gates that are 0 have no logarithm."""
# op: aten.log
# phase: forward
# module: router
# conditions: model tuple-output

import torch
from torch import nn
import torch.nn.functional as F


class Router(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.proj = nn.Linear(dim, experts)

    def forward(self, x):
        gates = F.relu(self.proj(x))
        gates = gates / gates.sum(-1, keepdim=True).clamp(min=1e-6)
        entropy = -(gates * gates.log()).sum(-1)  # <-- origin
        return gates, entropy.mean()


class MoE(nn.Module):
    def __init__(self, dim=8, experts=4):
        super().__init__()
        self.router = Router(dim, experts)
        self.experts = nn.ModuleList([nn.Linear(dim, dim) for _ in range(experts)])
        self.out = nn.Linear(dim, 3)

    def forward(self, x):
        gates, entropy = self.router(x)
        mixed = sum(gates[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
        return self.out(mixed), entropy


def main():
    torch.manual_seed(1)
    model = MoE()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(5):
        x = torch.rand(16, 8)
        logits, aux = model(x)
        loss = F.cross_entropy(logits, torch.randint(0, 3, (16,))) - 0.01 * aux
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
