"""Train, save, build everything anew, load, go on: the schedule continues where it was."""

import io

import torch
import torch.nn as nn


def build():
    model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)


torch.manual_seed(0)
x = torch.randn(800, 10)
y = (x[:, :3] + 0.3 * torch.randn(800, 3)).argmax(1)


def train(model, optimizer, scheduler, epochs):
    for epoch in epochs:
        for i in torch.randperm(800).split(40):
            loss = nn.functional.cross_entropy(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
        print(epoch, loss.item())


model, optimizer, scheduler = build()
train(model, optimizer, scheduler, range(4))
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optim": optimizer.state_dict(), "sched": scheduler.state_dict()}, file)
file.seek(0)
model, optimizer, scheduler = build()
checkpoint = torch.load(file)
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optim"])
scheduler.load_state_dict(checkpoint["sched"])
train(model, optimizer, scheduler, range(4, 8))
