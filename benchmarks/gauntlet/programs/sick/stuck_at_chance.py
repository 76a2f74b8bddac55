"""Parity of twelve bits with a linear model and a patience of none: the loss never leaves log 2."""
# expects: loss-plateau, shuffled-labels, missing-activation

import torch
import torch.nn as nn

torch.manual_seed(0)
bits = torch.randint(0, 2, (2000, 12)).float()
parity = (bits.sum(1) % 2).long()
model = nn.Linear(12, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(8):
    correct = 0
    for idx in torch.randperm(2000).split(40):
        logits = model(bits[idx] * 2 - 1)
        loss = loss_fn(logits, parity[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1) == parity[idx]).sum().item()
    print(f"epoch {epoch} accuracy {correct / 2000:.3f}")
