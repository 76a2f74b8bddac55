"""Mean teacher: an EMA copy gives targets for unlabelled data; the consistency weight ramps up."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 4))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
centres = 1.5 * torch.randn(4, 16)
for step in range(250):
    y = torch.randint(0, 4, (16,))
    labelled = centres[y] + torch.randn(16, 16)
    unlabelled = centres[torch.randint(0, 4, (48,))] + torch.randn(48, 16)
    loss = F.cross_entropy(student(labelled), y)
    with torch.no_grad():
        target = teacher(unlabelled).softmax(-1)
    loss = loss + min(1.0, step / 100) * F.mse_loss(student(unlabelled).softmax(-1), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.mul_(0.99).add_(s, alpha=0.01)
    if step % 50 == 0:
        print(step, loss.item())
