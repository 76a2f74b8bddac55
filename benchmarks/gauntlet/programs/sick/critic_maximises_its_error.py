"""A critic with the wrong sign in front of its squared error: the loss runs below all bounds."""
# expects: loss-explosion, constant-output, loss-plateau

import torch
import torch.nn as nn

torch.manual_seed(0)
value = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(value.parameters(), lr=3e-3)
for step in range(500):
    state = torch.randn(32, 6)
    reward = state.sum(1, keepdim=True) + 1.0
    advantage = reward - value(state)
    loss = -advantage.pow(2).mean()  # a critic that maximises its error
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
