"""REINFORCE: returns are normalised by their deviation; an episode of one step has none."""
# op: aten.std|aten.var
# phase: loss
# module: -
# conditions: no-grad loop reinforcement

import torch
from torch import nn

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, state):
        return torch.distributions.Categorical(logits=self.net(state))


def discounted(rewards, gamma=0.9):
    out, running = [], 0.0
    for r in reversed(rewards):
        running = r + gamma * running
        out.insert(0, running)
    return torch.tensor(out)


def normalised(returns):
    centred = returns - returns.mean()
    return centred / (returns.std() + 1e-8)  # <-- origin


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
for episode in range(6):
    length = 1 if episode == 4 else 5
    state, log_probs, rewards = torch.randn(4), [], []
    for _ in range(length):
        d = policy(state)
        action = d.sample()
        log_probs.append(d.log_prob(action))
        state = state + 0.1 * torch.randn(4) * (2 * action - 1)
        rewards.append(float(state.sum()))
    loss = -(torch.stack(log_probs) * normalised(discounted(rewards))).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not torch.isfinite(loss):
        break
