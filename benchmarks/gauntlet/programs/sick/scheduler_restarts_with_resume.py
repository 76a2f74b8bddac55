"""After 'resuming', the schedule is built again and the rate jumps a hundredfold in the middle of the run."""
# expects: lr-jump, loss-spike, lr-too-high

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)
x = torch.randn(640, 10)
y = (x[:, :3] ** 2).argmax(1)


def train_epoch():
    for i in torch.randperm(640).split(32):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


for epoch in range(20):
    if epoch == 10:  # "resume": the checkpoint's lr is overwritten
        for group in optimizer.param_groups:
            group["lr"] = 3.0
    print(epoch, optimizer.param_groups[0]["lr"], train_epoch())
    scheduler.step()
