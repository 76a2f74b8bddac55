"""A loss that stays where it began: inputs and labels are shuffled, but not together.

Everything runs, gradients flow, the weights move; only there is nothing to learn, since no label belongs
to its input any more. The loss rests at what guessing among four classes gives: ln 4, or 1.386.
"""

import torch
from torch import nn

torch.manual_seed(0)

inputs = torch.randn(2048, 20)
labels = (inputs @ torch.randn(20, 4)).argmax(dim=1)

model = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for epoch in range(60):
    input_batches = inputs[torch.randperm(2048)].split(128)
    label_batches = labels[torch.randperm(2048)].split(128)  # another permutation than that of the inputs
    for batch, targets in zip(input_batches, label_batches, strict=True):
        loss = nn.functional.cross_entropy(model(batch), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 10 == 0 or epoch == 59:
        print(f"epoch {epoch:2}  loss {loss.item():.4f}")
