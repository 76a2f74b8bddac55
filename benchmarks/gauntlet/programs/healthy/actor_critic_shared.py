"""Advantage actor-critic with one shared body, updates once an episode."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 48)
        self.action_head = nn.Linear(48, 2)
        self.value_head = nn.Linear(48, 1)

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


torch.manual_seed(0)
model = Policy()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for episode in range(70):
    state, saved, rewards = torch.zeros(4), [], []
    for t in range(15):
        probs, value = model(state)
        m = Categorical(probs)
        action = m.sample()
        saved.append((m.log_prob(action), value))
        rewards.append(1.0 if int(action) == int(state[0] > 0) else -1.0)
        state = torch.randn(4)
    R, returns = 0.0, []
    for r in rewards[::-1]:
        R = r + 0.5 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    policy_losses, value_losses = [], []
    for (log_prob, value), R in zip(saved, returns):
        policy_losses.append(-log_prob * (R - value.item()))
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    if episode % 30 == 0:
        print(episode, sum(rewards))
