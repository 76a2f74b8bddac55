"""DQN with replay buffer and target network on a tiny balancing task."""

import math
import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
random.seed(0)
torch.manual_seed(0)


class Pole:
    def reset(self):
        self.s = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.t = 0
        return torch.tensor(self.s)

    def step(self, action):
        x, v, a, w = self.s
        force = 1.0 if action else -1.0
        self.s = [x + 0.02 * v, v + 0.02 * force, a + 0.02 * w, w + 0.02 * (9.8 * math.sin(a) - force * math.cos(a))]
        self.t += 1
        done = abs(self.s[2]) > 0.2 or abs(self.s[0]) > 2.4 or self.t >= 60
        return torch.tensor(self.s), 1.0, done


policy_net = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
target_net = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
memory = deque(maxlen=2000)
env, steps_done = Pole(), 0
for episode in range(14):
    state, done = env.reset(), False
    while not done:
        eps = 0.05 + 0.85 * math.exp(-steps_done / 300)
        steps_done += 1
        with torch.no_grad():
            action = random.randrange(2) if random.random() < eps else int(policy_net(state).argmax())
        nxt, reward, done = env.step(action)
        memory.append(Transition(state, action, None if done else nxt, reward))
        state = nxt
        if len(memory) < 32:
            continue
        batch = Transition(*zip(*random.sample(memory, 32)))
        mask = torch.tensor([s is not None for s in batch.next_state])
        q = policy_net(torch.stack(batch.state)).gather(1, torch.tensor(batch.action)[:, None])
        values = torch.zeros(32)
        with torch.no_grad():
            values[mask] = target_net(torch.stack([s for s in batch.next_state if s is not None])).max(1).values
        expected = values * 0.95 + torch.tensor(batch.reward)
        loss = nn.SmoothL1Loss()(q, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()
        weights = target_net.state_dict()
        for key, value in policy_net.state_dict().items():
            weights[key] = value * 0.01 + weights[key] * 0.99
        target_net.load_state_dict(weights)
    print(episode, env.t)
