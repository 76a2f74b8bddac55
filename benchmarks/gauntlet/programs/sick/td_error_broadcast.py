"""DQN: q values (N, 1) minus targets (N,), squared by hand, so that not even torch warns."""
# expects: broadcast-loss

import random
from collections import deque

import torch
import torch.nn as nn

random.seed(0)
torch.manual_seed(0)
q_net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
target_net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
target_net.load_state_dict(q_net.state_dict())
optimizer = torch.optim.Adam(q_net.parameters(), lr=1e-3)
memory = deque(maxlen=2000)
state = torch.randn(4)
for step in range(400):
    with torch.no_grad():
        action = random.randrange(2) if random.random() < 0.2 else int(q_net(state).argmax())
    following = 0.9 * state + 0.3 * torch.randn(4) + (0.1 if action else -0.1)
    reward = -float(following.abs().sum())
    memory.append((state, action, reward, following))
    state = following
    if len(memory) < 64:
        continue
    s, a, r, n = zip(*random.sample(memory, 32))
    q = q_net(torch.stack(s)).gather(1, torch.tensor(a).unsqueeze(1))
    with torch.no_grad():
        target = torch.tensor(r) + 0.9 * target_net(torch.stack(n)).max(1).values
    loss = (q - target).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        target_net.load_state_dict(q_net.state_dict())
        print(step, loss.item())
