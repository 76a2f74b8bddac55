"""A grid search: one training after the other, each model made in a function and forgotten."""
# run: status=healthy steps=20+20+30+30
# when: thorough
import itertools
import json

import torch


def train(lr, n_hidden, steps):
    torch.manual_seed(0)
    x = torch.randn(128, 4)
    y = torch.sin(2 * x).mean(1, keepdim=True)
    model = torch.nn.Sequential(torch.nn.Linear(4, n_hidden), torch.nn.Tanh(), torch.nn.Linear(n_hidden, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


results = {}
for n_hidden, lr in itertools.product([16, 48], [3e-3, 1e-2]):
    results[f"h{n_hidden}_lr{lr}"] = r = train(lr, n_hidden, 20 if n_hidden == 16 else 30)
    print(f"hidden={n_hidden} lr={lr}: {r:.6f}")

best = min(results, key=results.get)
print("best:", best)
with open("results.json", "w") as f:
    json.dump(results, f, indent=2)
