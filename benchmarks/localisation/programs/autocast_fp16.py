"""Under fp16 autocast the sums of a layer with large weights pass 65504."""
# op: aten.linear|aten.addmm|aten.mm|aten.matmul
# phase: forward
# module: body.2
# conditions: amp fp16 model

import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 1)
        nn.init.normal_(self.body[2].weight, std=20.0)

    def forward(self, x):
        x = self.body(x)  # <-- origin
        return self.head(x)


torch.manual_seed(0)
model = Regressor()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
for step in range(6):
    x = torch.randn(8, 8) * 5
    if step == 4:
        x[6] *= 500  # metres, not kilometres
    with torch.autocast("cpu", dtype=torch.float16):
        y = model(x)
        loss = nn.functional.l1_loss(y.float(), torch.zeros(8, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
