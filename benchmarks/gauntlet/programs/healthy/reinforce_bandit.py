"""REINFORCE with a contextual bandit, one update an episode."""

import torch
import torch.nn as nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 64)
        self.dropout = nn.Dropout(p=0.2)
        self.affine2 = nn.Linear(64, 3)
        self.saved_log_probs, self.rewards = [], []

    def forward(self, x):
        x = torch.relu(self.dropout(self.affine1(x)))
        return torch.softmax(self.affine2(x), dim=-1)


torch.manual_seed(0)
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
best = torch.randn(4, 3)
for episode in range(100):
    for t in range(12):
        state = torch.randn(4)
        m = Categorical(policy(state))
        action = m.sample()
        policy.saved_log_probs.append(m.log_prob(action))
        policy.rewards.append(float((state @ best)[action]))
    returns, R = [], 0.0
    for r in reversed(policy.rewards):
        R = r + 0.3 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    loss = torch.stack([-lp * g for lp, g in zip(policy.saved_log_probs, returns)]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if episode % 30 == 0:
        print(episode, sum(policy.rewards) / 12)
    policy.saved_log_probs.clear()
    policy.rewards.clear()
