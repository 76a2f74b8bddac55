"""Random search: sixty short trials, each with a model of its own."""
# run: status=healthy steps=300 runs=60
# when: thorough
import random

import torch

random.seed(0)
x = torch.linspace(-1, 1, 64).unsqueeze(1)
y = x ** 3
best = (float("inf"), None)
for trial in range(60):
    torch.manual_seed(trial)
    width, lr = random.choice([4, 8, 16]), 10 ** random.uniform(-2.5, -1.5)
    model = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(5):
        loss = (model(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    best = min(best, (loss.item(), f"trial {trial}: width {width} lr {lr:.5f}"))
print(best)
