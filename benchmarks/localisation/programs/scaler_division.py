"""fp16 autocast with a GradScaler that skips its first steps, as it should; the fault comes later, in the loss."""
# op: aten.div
# phase: loss
# module: -
# conditions: amp fp16 scaler loop late

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class UNetish(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 4, 3, padding=1)
        self.up = nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x):
        return self.up(F.relu(self.down(x)))


def dice_loss(logits, target):
    p = logits.float().sigmoid() * (target >= 0)
    overlap = (p * target).sum((1, 2, 3))
    size = (target * target).sum((1, 2, 3))
    return (1 - overlap / size).mean()  # <-- origin


model = UNetish()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**26)
for step in range(14):
    image = torch.randn(2, 1, 6, 6)
    target = (image > 0.5).float()
    if step == 11:
        target[1] = 0  # a slice without a tumour
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(image)
        loss = dice_loss(logits, target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    print(step, loss.item(), scaler.get_scale())
