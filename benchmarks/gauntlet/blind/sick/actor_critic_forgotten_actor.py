"""Actor-critic on a corridor: the critic's optimizer steps, the actor's gradients flow but actor_opt.step() is never called, returns stay at random level."""
# expects: missing-step
# report: https://github.com/pytorch/pytorch/issues/3814
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(0)
N = 9  # corridor, reward at the right end


class Corridor:
    def reset(self):
        self.pos, self.t = N // 2, 0
        return self.obs()

    def obs(self):
        o = torch.zeros(N)
        o[self.pos] = 1
        return o

    def step(self, a):
        self.pos = max(0, min(N - 1, self.pos + (1 if a == 1 else -1)))
        self.t += 1
        done = self.pos in (0, N - 1) or self.t >= 30
        return self.obs(), 1.0 if self.pos == N - 1 else (-0.5 if self.pos == 0 else -0.01), done


actor = nn.Sequential(nn.Linear(N, 32), nn.Tanh(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(N, 32), nn.Tanh(), nn.Linear(32, 1))
actor_opt = torch.optim.Adam(actor.parameters(), lr=5e-3)
critic_opt = torch.optim.Adam(critic.parameters(), lr=5e-3)
env, gamma = Corridor(), 0.98
history = []
for ep in range(150):
    s, done = env.reset(), False
    logps, values, rewards = [], [], []
    while not done:
        d = Categorical(logits=actor(s))
        a = d.sample()
        logps.append(d.log_prob(a))
        values.append(critic(s).squeeze())
        s, r, done = env.step(a.item())
        rewards.append(r)
    R, returns = 0.0, []
    for r in reversed(rewards):
        R = r + gamma * R
        returns.insert(0, R)
    returns, values = torch.tensor(returns), torch.stack(values)
    adv = returns - values.detach()
    actor_loss = -(torch.stack(logps) * adv).mean()
    critic_loss = (values - returns).pow(2).mean()

    actor_opt.zero_grad()
    actor_loss.backward()
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()
    history.append(sum(rewards))
    if ep % 25 == 24:
        print(f"episode {ep+1} mean return {sum(history[-25:])/25:.3f} critic {critic_loss.item():.4f}")
