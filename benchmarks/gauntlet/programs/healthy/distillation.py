"""Knowledge distillation: a trained teacher in eval mode, soft and hard loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def net(width):
    return nn.Sequential(nn.Linear(16, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 5))


torch.manual_seed(0)
x = torch.randn(1000, 16)
y = (x[:, :5] + 0.5 * x[:, 5:10] * x[:, 10:15]).argmax(1)
teacher, student = net(128), net(24)
optimizer = torch.optim.Adam(teacher.parameters(), lr=2e-3)
for epoch in range(5):
    for i in torch.randperm(1000).split(50):
        loss = F.cross_entropy(teacher(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("teacher", loss.item())
teacher.eval()
optimizer = torch.optim.Adam(student.parameters(), lr=2e-3)
T = 2.0
for epoch in range(6):
    for i in torch.randperm(1000).split(50):
        with torch.no_grad():
            soft = F.softmax(teacher(x[i]) / T, dim=1)
        logits = student(x[i])
        kd = F.kl_div(F.log_softmax(logits / T, dim=1), soft, reduction="batchmean") * T * T
        loss = 0.7 * kd + 0.3 * F.cross_entropy(logits, y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("student", epoch, loss.item())
