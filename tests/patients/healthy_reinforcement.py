"""Healthy: reinforcement learning, where the loss says little and the data depend on the model."""

from __future__ import annotations

import copy
import random
from collections import deque

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import seismograd as sg
from patients.healthy_basics import mlp
from patients.register import healthy


class Cart:
    """A pole to be balanced, in a few lines: state of four numbers, two actions, a point for each step it stands."""

    def reset(self) -> Tensor:
        self.state, self.age = 0.05 * torch.randn(4), 0
        return self.state

    def step(self, action: int) -> tuple[Tensor, float, bool]:
        x, v, a, w = self.state.tolist()
        force = 1.0 if action else -1.0
        spin = 0.4 * a - 0.3 * force
        self.state = torch.tensor([x + 0.1 * v, v + 0.1 * force, a + 0.1 * w, w + spin])
        self.age += 1
        done = abs(x) > 2.4 or abs(a) > 0.6 or self.age >= 60
        return self.state, 1.0, done


def returns(rewards: list[float], gamma: float = 0.98) -> Tensor:
    total, out = 0.0, []
    for reward in reversed(rewards):
        total = reward + gamma * total
        out.append(total)
    return torch.tensor(out[::-1])


@healthy()
def reinforce() -> sg.TrainingDebugger:
    """pytorch/examples: one episode a step, returns standardised, a loss that hovers around zero."""
    policy = mlp(4, 32, 2)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    env = Cart()
    with sg.watch(policy, optimizer, sinks=[]) as watch:
        for _ in range(90):
            state, done, logs, rewards = env.reset(), False, [], []
            while not done:
                choice = torch.distributions.Categorical(logits=policy(state))
                action = choice.sample()
                logs.append(choice.log_prob(action))
                state, reward, done = env.step(int(action))
                rewards.append(reward)
            gain = returns(rewards)
            gain = (gain - gain.mean()) / (gain.std() + 1e-6)
            loss = -(torch.stack(logs) * gain).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def reinforce_raw_returns() -> sg.TrainingDebugger:
    """Without a baseline: the better the policy, the longer the episode, the larger the loss."""
    policy = mlp(4, 32, 2)
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    env = Cart()
    with sg.watch(policy, optimizer, sinks=[]) as watch:
        for _ in range(100):
            state, done, logs, rewards = env.reset(), False, [], []
            while not done:
                choice = torch.distributions.Categorical(logits=policy(state))
                action = choice.sample()
                logs.append(choice.log_prob(action))
                state, reward, done = env.step(int(action))
                rewards.append(reward)
            loss = -(torch.stack(logs) * returns(rewards)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


def deep_q(sync: int, gamma: float) -> sg.TrainingDebugger:
    net = mlp(4, 48, 48, 2)
    target = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    memory: deque[tuple[Tensor, int, float, Tensor, float]] = deque(maxlen=2000)
    env = Cart()
    state = env.reset()
    with sg.watch(net, optimizer, sinks=[]) as watch:
        for i in range(600):
            explore = max(0.05, 1 - i / 300)
            with torch.no_grad():
                action = random.randrange(2) if random.random() < explore else int(net(state).argmax())
            after, reward, done = env.step(action)
            memory.append((state, action, reward, after, float(done)))
            state = env.reset() if done else after
            if len(memory) < 64:
                continue
            s, a, r, n, d = zip(*random.sample(memory, 32), strict=True)
            with torch.no_grad():
                goal = torch.tensor(r) + gamma * (1 - torch.tensor(d)) * target(torch.stack(n)).amax(1)
            guess = net(torch.stack(s)).gather(1, torch.tensor(a).unsqueeze(1)).squeeze(1)
            optimizer.zero_grad()
            F.smooth_l1_loss(guess, goal).backward()
            nn.utils.clip_grad_value_(net.parameters(), 100)
            optimizer.step()
            if i % sync == 0:
                target.load_state_dict(net.state_dict())
    return watch


@healthy(slow=True)
def deep_q_learning() -> sg.TrainingDebugger:
    """The target is copied every 100 steps, and the loss jumps with it; values grow as the policy gets better."""
    return deep_q(100, 0.98)


@healthy(slow=True)
def deep_q_learning_fast_sync() -> sg.TrainingDebugger:
    return deep_q(20, 0.95)


@healthy()
def actor_critic() -> sg.TrainingDebugger:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.policy, self.value = nn.Linear(4, 64), nn.Linear(64, 2), nn.Linear(64, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            h = F.relu(self.body(x))
            return self.policy(h), self.value(h).squeeze(-1)

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    env = Cart()
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(80):
            state, done, logs, values, rewards = env.reset(), False, [], [], []
            while not done:
                logits, value = model(state)
                choice = torch.distributions.Categorical(logits=logits)
                action = choice.sample()
                logs.append(choice.log_prob(action))
                values.append(value)
                state, reward, done = env.step(int(action))
                rewards.append(reward)
            gain, value = returns(rewards), torch.stack(values)
            loss = -(torch.stack(logs) * (gain - value.detach())).sum() + F.smooth_l1_loss(value, gain, reduction="sum")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return watch


@healthy()
def proximal_policy() -> sg.TrainingDebugger:
    """PPO on a bandit with context: the clipped objective is about zero at each first epoch and negative after."""
    policy, value = mlp(6, 32, 4, activation=nn.Tanh), mlp(6, 32, 1, activation=nn.Tanh)
    model = nn.ModuleList([policy, value])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    best = torch.randn(6, 4)
    with sg.watch(model, optimizer, sinks=[]) as watch:
        for _ in range(60):
            state = torch.randn(128, 6)
            with torch.no_grad():
                choice = torch.distributions.Categorical(logits=policy(state))
                action = choice.sample()
                old = choice.log_prob(action)
                reward = (state @ best).gather(1, action.unsqueeze(1)).squeeze(1)
                gain = reward - value(state).squeeze(1)
                gain = (gain - gain.mean()) / gain.std()
            for _ in range(4):
                choice = torch.distributions.Categorical(logits=policy(state))
                ratio = torch.exp(choice.log_prob(action) - old)
                clipped = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                error = F.mse_loss(value(state).squeeze(1), reward)
                loss = -clipped + 0.5 * error - 0.01 * choice.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
    return watch


@healthy()
def soft_actor_critic() -> sg.TrainingDebugger:
    """Three optimizers: actor, critic and temperature, on a toy task."""
    actor, critic = mlp(3, 32, 2), mlp(4, 32, 1)
    heat = nn.Module()
    heat.log = nn.Parameter(torch.zeros(()))
    optimizers = [torch.optim.Adam(m.parameters(), lr=3e-3) for m in (actor, critic, heat)]
    with sg.watch({"actor": actor, "critic": critic, "heat": heat}, optimizers, sinks=[]) as watch:
        for _ in range(300):
            state = torch.randn(64, 3)
            mean, log_std = actor(state).chunk(2, 1)
            normal = torch.distributions.Normal(mean, log_std.clamp(-4, 1).exp())
            action = normal.rsample()
            log_prob = normal.log_prob(action).squeeze(1)
            reward = -(action.detach() - state[:, :1]).pow(2).squeeze(1)
            q = critic(torch.cat([state, action.detach()], 1)).squeeze(1)
            optimizers[1].zero_grad()
            F.mse_loss(q, reward).backward()
            optimizers[1].step()
            value = critic(torch.cat([state, action], 1)).squeeze(1)
            optimizers[0].zero_grad()
            (heat.log.exp().detach() * log_prob - value).mean().backward()
            optimizers[0].step()
            optimizers[2].zero_grad()
            (-heat.log.exp() * (log_prob.detach() - 1.0).mean()).backward()
            optimizers[2].step()
    return watch
