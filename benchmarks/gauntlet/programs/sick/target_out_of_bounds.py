"""Ten classes in the data, nine outputs: the first batch with a 9 in it ends the run."""
# expects: label-out-of-range
# exits: 1
# report: https://discuss.pytorch.org, "IndexError: Target 9 is out of bounds."

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
labels = torch.multinomial(torch.tensor([1.0] * 9 + [0.03]), 900, replacement=True)
labels[-1] = 9
images = torch.randn(10, 1, 8, 8)[labels] + 0.5 * torch.randn(900, 1, 8, 8)
loader = DataLoader(TensorDataset(images, labels), batch_size=30, shuffle=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 9))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
