"""REINFORCE on a corridor: the loss is noisy, often negative, and means nothing by itself."""
# run: status=healthy steps=40
# when: thorough
import random

import torch
import torch.nn as nn
import torch.optim as optim
from torch.distributions import Categorical

random.seed(543)
torch.manual_seed(543)
GAMMA = 0.99
EPS = 1e-8


class Corridor:
    """Start in the middle of seven cells; the right end pays 1, the left end nothing, each move costs 0.02."""

    def reset(self):
        self.pos = 3
        self.t = 0
        return self.observe()

    def observe(self):
        state = torch.zeros(7)
        state[self.pos] = 1.0
        return state

    def step(self, action):
        self.t += 1
        if random.random() < 0.1:
            action = 1 - action
        self.pos += 1 if action == 1 else -1
        done = self.pos in (0, 6) or self.t >= 30
        return self.observe(), (1.0 if self.pos == 6 else -0.02), done


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(7, 32)
        self.dropout = nn.Dropout(p=0.2)
        self.affine2 = nn.Linear(32, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        return self.affine2(torch.relu(self.dropout(self.affine1(x)))).softmax(-1)


env = Corridor()
policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=1e-2)


def select_action(state):
    m = Categorical(policy(state))
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    R, returns = 0, []
    for r in policy.rewards[::-1]:
        R = r + GAMMA * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std(unbiased=False) + EPS)
    loss = torch.stack([-lp * R for lp, R in zip(policy.saved_log_probs, returns)]).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
    return loss.item()


running_reward = 0.0
for i_episode in range(1, 41):
    state, ep_reward, done = env.reset(), 0, False
    while not done:
        state, reward, done = env.step(select_action(state))
        policy.rewards.append(reward)
        ep_reward += reward
    running_reward = 0.05 * ep_reward + 0.95 * running_reward
    loss = finish_episode()
    if i_episode % 10 == 0:
        print(f'Episode {i_episode}\tLast reward: {ep_reward:.2f}\tAverage: {running_reward:.4f}\tLoss: {loss:.4f}')

torch.save(policy.state_dict(), "weights.pt")
