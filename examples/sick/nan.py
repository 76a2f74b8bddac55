"""A NaN out of nowhere: two equal samples, and a square root at zero.

A network learns an embedding in which pairs of the same kind lie close together. The distance is the textbook
formula, and it works, until a pair holds the same sample twice: the distance is zero, the loss is fine,
but the derivative of the square root is infinite there, and times zero it is NaN.
"""

import torch
from torch import nn

torch.manual_seed(0)

samples = torch.randn(9000, 64)
kinds = (samples[:, 0] > 0).long()


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 32))

    def forward(self, left, right):
        difference = self.layers(left) - self.layers(right)
        return torch.sqrt((difference**2).sum(dim=1))  # at zero its derivative is infinite


model = Embedding()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(60):
    left, right = torch.randint(0, 9000, (2, 256))  # sooner or later the same one twice
    distance = model(samples[left], samples[right])
    same = kinds[left] == kinds[right]
    loss = torch.where(same, distance, (2 - distance).clamp(min=0)).mean()

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step:3}  loss {loss.item():.4f}")
