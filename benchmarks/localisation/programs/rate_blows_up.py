"""A learning rate far too high makes the weights huge; then a matrix product overflows."""
# op: aten.linear|aten.addmm|aten.mm|aten.matmul
# phase: forward
# module: layers.3
# conditions: learning-rate model

import torch
from torch import nn


class Deep(nn.Module):
    def __init__(self, dim=16, depth=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)  # <-- origin
        return x


torch.manual_seed(0)
model = Deep()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 4 else 1e15)  # a typo in the config
for step in range(8):
    x = torch.randn(8, 16)
    loss = torch.nn.functional.l1_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(step, loss.item())
