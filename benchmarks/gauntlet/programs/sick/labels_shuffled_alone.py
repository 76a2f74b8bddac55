"""x was shuffled, y was not: labels have nothing to do with their inputs."""
# expects: shuffled-labels, loss-plateau, overfitting

import torch
import torch.nn as nn

torch.manual_seed(0)
centres = 2 * torch.randn(6, 20)
y = torch.arange(6).repeat(300)
x = centres[y] + torch.randn(1800, 20)
x = x[torch.randperm(1800)]  # and y?
model = nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 6))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    hits = 0
    for i in torch.randperm(1800).split(36):
        logits = model(x[i])
        loss = nn.functional.cross_entropy(logits, y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (logits.argmax(1) == y[i]).sum().item()
    print(epoch, loss.item(), hits / 1800)
