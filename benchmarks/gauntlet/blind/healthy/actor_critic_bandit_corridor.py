"""Advantage actor-critic (shared trunk, per-episode update) on a corridor with a key: actor loss changes sign and critic loss grows when rewards first appear."""
# expects:
# source: https://github.com/pytorch/examples/blob/main/reinforcement_learning/actor_critic.py
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

random.seed(1)
torch.manual_seed(1)
N = 7


class Corridor:
    """walk left to fetch the key, then right to the door"""

    def reset(self):
        self.pos, self.key, self.t = random.randrange(1, N - 1), 0, 0
        return self.obs()

    def obs(self):
        v = torch.zeros(N + 1)
        v[self.pos] = 1
        v[N] = self.key
        return v

    def step(self, a):
        self.pos = min(max(self.pos + (1 if a else -1), 0), N - 1)
        self.t += 1
        r, done = -0.01, False
        if self.pos == 0 and not self.key:
            self.key, r = 1, 0.3
        if self.pos == N - 1 and self.key:
            r, done = 1.0, True
        return self.obs(), r, done or self.t >= 40


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(N + 1, 64)
        self.action_head = nn.Linear(64, 2)
        self.value_head = nn.Linear(64, 1)

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x).squeeze(-1)


model = Policy()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
env = Corridor()
lens = []
for ep in range(1, 251):
    s, done = env.reset(), False
    saved, rewards = [], []
    while not done:
        probs, v = model(s)
        m = Categorical(probs)
        a = m.sample()
        saved.append((m.log_prob(a), v, m.entropy()))
        s, r, done = env.step(a.item())
        rewards.append(r)
    R, returns = 0.0, []
    for r in reversed(rewards):
        R = r + 0.97 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    logp, v, ent = (torch.stack(t) for t in zip(*saved))
    adv = returns - v.detach()
    actor = -(logp * adv).mean()
    critic = F.smooth_l1_loss(v, returns)
    loss = actor + critic - 0.01 * ent.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    lens.append(env.t)
    if ep % 50 == 0:
        print(f"episode {ep} mean length {sum(lens[-50:]) / 50:.1f} actor {actor.item():+.3f} critic {critic.item():.3f}")
