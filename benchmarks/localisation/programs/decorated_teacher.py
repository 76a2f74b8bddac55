"""A function under no_grad takes the logarithm of a probability that is exactly 0."""
# op: aten.log
# phase: loss
# module: -
# conditions: no-grad decorated
import copy
import torch
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 4))
teacher = copy.deepcopy(student).eval().requires_grad_(False)
opt = torch.optim.Adam(student.parameters(), lr=1e-3)


@torch.no_grad()
def targets(x, tau):
    p = torch.softmax(teacher(x) / tau, -1)
    return p, torch.log(p)  # <-- origin


def distill(x, tau):
    p, lp = targets(x, tau)
    q = torch.log_softmax(student(x), -1)
    return (p * (lp - q)).sum(-1).mean()


for i in range(7):
    x = torch.randn(8, 5)
    loss = distill(x, 0.1 if i < 4 else 1e-4)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for a, b in zip(teacher.parameters(), student.parameters()):
            a.mul_(0.99).add_(b, alpha=0.01)
