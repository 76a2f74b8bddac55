"""Distillation: the frozen teacher is called in train mode, its running statistics follow the student's data."""
# expects: buffer-drift

import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(width):
    return nn.Sequential(nn.Linear(20, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 5))


class Distiller(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = mlp(128).requires_grad_(False)
        self.student = mlp(16)

    def forward(self, x):
        with torch.no_grad():
            soft = self.teacher(x)
        return self.student(x), soft


torch.manual_seed(0)
model = Distiller()
model.train()
optimizer = torch.optim.SGD(model.student.parameters(), lr=0.05, momentum=0.9)
for step in range(150):
    x = torch.randn(32, 20) * 2 + 1
    student, teacher = model(x)
    loss = F.kl_div(F.log_softmax(student / 2, -1), F.softmax(teacher / 2, -1), reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
