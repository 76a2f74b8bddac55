"""Continual Q-learning on a line world: the buffer grows, early batches repeat the few first transitions."""

import random

import torch
import torch.nn as nn

random.seed(0)
torch.manual_seed(0)
q = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(q.parameters(), lr=2e-3)
buffer, position = [], 3
one_hot = torch.eye(8)
for step in range(400):
    state = one_hot[position]
    with torch.no_grad():
        action = random.randrange(2) if random.random() < max(0.1, 1 - step / 200) else int(q(state).argmax())
    position = max(0, min(7, position + (1 if action else -1)))
    reward = 1.0 if position == 7 else 0.0
    buffer.append((state, action, reward, one_hot[position], position == 7))
    if position == 7:
        position = random.randrange(4)
    if len(buffer) < 8:
        continue
    s, a, r, n, done = zip(*random.choices(buffer, k=32))
    with torch.no_grad():
        target = torch.tensor(r) + 0.9 * (1 - torch.tensor(done).float()) * q(torch.stack(n)).max(1).values
    predicted = q(torch.stack(s))[torch.arange(32), torch.tensor(a)]
    loss = nn.functional.mse_loss(predicted, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 80 == 0:
        print(step, loss.item())
