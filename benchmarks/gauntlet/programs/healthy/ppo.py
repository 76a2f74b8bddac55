"""PPO: several epochs over one rollout, clipped ratio, value and entropy terms."""

import torch
import torch.nn as nn
from torch.distributions import Normal


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
        self.critic = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.zeros(1))

    def dist(self, s):
        return Normal(self.actor(s), self.log_std.exp())


torch.manual_seed(0)
agent = ActorCritic()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
for update in range(20):
    states = torch.randn(256, 3)
    with torch.no_grad():
        d = agent.dist(states)
        actions = d.sample()
        old = d.log_prob(actions).sum(-1)
        rewards = -(actions - states[:, :1] + 0.5 * states[:, 1:2]).pow(2).squeeze(1)
        values = agent.critic(states).squeeze(1)
        advantages = rewards - values
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for epoch in range(4):
        for i in torch.randperm(256).split(64):
            d = agent.dist(states[i])
            ratio = (d.log_prob(actions[i]).sum(-1) - old[i]).exp()
            policy = -torch.min(ratio * advantages[i], ratio.clamp(0.8, 1.2) * advantages[i]).mean()
            value = (agent.critic(states[i]).squeeze(1) - rewards[i]).pow(2).mean()
            loss = policy + 0.5 * value - 0.01 * d.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    if update % 5 == 0:
        print(update, rewards.mean().item())
