"""F.kl_div wants log-probabilities; the user gives it the logarithm of a sparsemax that is 0."""
# op: aten.log
# phase: loss
# module: -
# conditions: loop library

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(2)


class TopicModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, bag):
        z = F.relu(self.net(bag) + 1.0)
        return z / z.sum(-1, keepdim=True).clamp(min=1e-8)


model = TopicModel()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
prior = torch.full((5,), 0.2)
for it in range(40):
    q = model(torch.rand(16, 12) * (1 + it))
    log_q = q.log()  # <-- origin
    loss = F.kl_div(log_q, prior.expand_as(q), reduction="batchmean") + q[:, 0].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not torch.isfinite(loss):
        print("stop: loss is", loss.item())
        break
