"""One fraud in two hundred, batches of 32, plain loss: the model says no to everything."""
# expects: class-imbalance

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
y = (torch.rand(6000) < 0.01).long()
x = torch.randn(6000, 12)
x[:, 0] += 1.2 * y
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(4):
    correct = 0
    for xb, yb in loader:
        logits = net(xb)
        loss = nn.functional.cross_entropy(logits, yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1) == yb).sum().item()
    print(epoch, f"accuracy {correct / len(y):.3f}")
