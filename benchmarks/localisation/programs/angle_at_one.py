"""The angle between a vector and itself: acos has no derivative at 1."""
# op: aten.acos
# phase: backward
# module: head
# conditions: model backward
import torch
from torch import nn
import torch.nn.functional as F


class Angular(nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.w = nn.Parameter(torch.randn(k, d))

    def forward(self, x):
        c = F.normalize(x) @ F.normalize(self.w).t()
        theta = torch.acos(c.clamp(-1, 1))  # <-- origin
        return -theta


torch.manual_seed(0)
enc = nn.Linear(6, 4, bias=False)
head = Angular(4, 3)
opt = torch.optim.SGD(list(enc.parameters()) + list(head.parameters()), lr=0.01)
for i in range(6):
    x = torch.randn(5, 6)
    if i == 4:
        with torch.no_grad():
            enc.weight.copy_(torch.eye(4, 6))
            head.w[1] = torch.tensor([1.0, 0, 0, 0])
        x[0] = torch.tensor([2.0, 0, 0, 0, 0, 0])
    loss = F.cross_entropy(head(enc(x)), torch.tensor([1, 0, 2, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
