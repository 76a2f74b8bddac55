"""Before, during and after a run, in one plain loop.

    python examples/plain/train.py

Before: preflight looks at one batch. During: the watch reads every step. After: the recorded run is read back.
"""

import torch
from torch import nn

import seismograd as sg

torch.manual_seed(0)

rule = torch.randn(20, 4)
inputs = torch.randn(2048, 20)
labels = (inputs @ rule + 0.5 * torch.randn(2048, 4)).argmax(dim=1)
val_inputs = torch.randn(512, 20)
val_labels = (val_inputs @ rule + 0.5 * torch.randn(512, 4)).argmax(dim=1)

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()

# Before: seconds, on one batch, and everything is put back.
flight = sg.preflight(model, (inputs[:64], labels[:64]), loss_fn, optimizer)
print(flight)

# During: what is wrong is said on stderr while it happens.
with sg.watch(model, optimizer, name="plain", store="runs") as watch:
    for epoch in range(3):
        for batch in torch.randperm(2048).split(64):
            loss = loss_fn(model(inputs[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            watch.validate(loss_fn(model(val_inputs), val_labels))
        print(f"epoch {epoch}  loss {loss.item():.4f}")

# After: the record, here or in another process. `seismograd show last --store runs` draws it.
run = sg.runs("runs")[0]
print(run.name, watch.status, [finding.id for finding in watch.findings])
