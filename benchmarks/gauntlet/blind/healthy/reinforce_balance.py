"""REINFORCE on a hand-written cart-pole: the 'loss' is meaningless, wanders around zero and changes sign, while the episode length climbs."""
# expects:
# source: https://github.com/pytorch/examples/blob/main/reinforcement_learning/reinforce.py
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

torch.manual_seed(543)
rng = np.random.default_rng(543)


class CartPole:
    def reset(self):
        self.s = rng.uniform(-0.05, 0.05, 4)
        self.t = 0
        return self.s.copy()

    def step(self, a):
        x, xd, th, thd = self.s
        f = 10.0 if a == 1 else -10.0
        c, s = math.cos(th), math.sin(th)
        tmp = (f + 0.05 * thd ** 2 * s) / 1.1
        tha = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        xa = tmp - 0.05 * tha * c / 1.1
        self.s = np.array([x + 0.02 * xd, xd + 0.02 * xa, th + 0.02 * thd, thd + 0.02 * tha])
        self.t += 1
        done = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.2095
        return self.s.copy(), 1.0, done, self.t >= 200


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 128)
        self.dropout = nn.Dropout(p=0.3)
        self.affine2 = nn.Linear(128, 2)
        self.saved_log_probs, self.rewards = [], []

    def forward(self, x):
        return F.softmax(self.affine2(F.relu(self.dropout(self.affine1(x)))), dim=1)


policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
eps = np.finfo(np.float32).eps.item()


def select_action(state):
    m = Categorical(policy(torch.from_numpy(state).float().unsqueeze(0)))
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    R, returns = 0, []
    for r in policy.rewards[::-1]:
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    policy_loss = torch.cat([-lp * R for lp, R in zip(policy.saved_log_probs, returns)]).sum()
    optimizer.zero_grad()
    policy_loss.backward()
    optimizer.step()
    policy.rewards.clear()
    policy.saved_log_probs.clear()
    return policy_loss.item()


env = CartPole()
running = 10
for i in range(1, 161):
    s = env.reset()
    while True:
        s, r, done, trunc = env.step(select_action(s))
        policy.rewards.append(r)
        if done or trunc:
            break
    running = 0.05 * env.t + 0.95 * running
    l = finish_episode()
    if i % 20 == 0:
        print(f"Episode {i}\tLast length: {env.t}\tAverage length: {running:.1f}\tloss {l:.2f}")
    if running > 150:
        print("solved")
        break
