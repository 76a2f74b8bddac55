"""After half of the run a second source of data comes in that was not normalised like the first."""
# expects: input-drift, loss-spike, unnormalized-input

import torch
import torch.nn as nn

torch.manual_seed(0)
w = torch.randn(10, 3)
model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def old_camera():
    x = torch.randn(32, 10)
    return x, (x @ w).argmax(1)


def new_camera():
    x = torch.randn(32, 10)
    return 128 + 60 * x, (x @ w).argmax(1)


for step in range(300):
    x, y = old_camera() if step < 200 else new_camera()
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
