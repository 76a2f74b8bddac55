"""KL divergence by hand: a confident teacher gives a probability of exactly 0, and 0 * log(0) is NaN."""
# op: aten.log
# phase: loss
# module: -
# conditions: teacher-student several-roots no-grad loop

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


def make(width):
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 5))


teacher, student = make(64).eval(), make(8)
for p in teacher.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
T = 0.5

for step in range(6):
    x = torch.randn(16, 6)
    if step == 4:
        x[9] *= 300
    with torch.no_grad():
        soft = F.softmax(teacher(x) / T, dim=-1)
        log_soft = torch.log(soft)  # <-- origin
    log_student = F.log_softmax(student(x) / T, dim=-1)
    loss = (soft * (log_soft - log_student)).sum(-1).mean() * T**2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
