"""bfloat16 autocast on the CPU, float32 weights, no scaler needed."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(900, 24)
y = (x[:, :5] + 0.5 * torch.randn(900, 5)).argmax(1)
model = nn.Sequential(nn.Linear(24, 96), nn.LayerNorm(96), nn.GELU(), nn.Linear(96, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(6):
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=30, shuffle=True):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
