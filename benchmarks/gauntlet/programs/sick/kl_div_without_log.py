"""F.kl_div gets probabilities as input where log-probabilities are due."""
# expects: loss-input-mismatch

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 6))
for p in teacher.parameters():
    p.requires_grad_(False)
student = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 6))
optimizer = torch.optim.Adam(student.parameters(), lr=3e-3)
T = 3.0
for step in range(200):
    x = torch.randn(64, 10)
    with torch.no_grad():
        t = F.softmax(teacher(x) / T, dim=1)
    s = F.softmax(student(x) / T, dim=1)
    loss = F.kl_div(s, t, reduction="batchmean") * T * T
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
