"""PPO with clipped surrogate, GAE and entropy bonus on a 1-D point mass: policy loss hovers around zero with either sign and is no measure of progress; the return is."""
# expects:
# source: https://arxiv.org/abs/1707.06347
import torch
import torch.nn as nn
from torch.distributions import Normal

torch.manual_seed(0)
N_ENV, T = 32, 32


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        self.v = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.zeros(1))
        nn.init.orthogonal_(self.pi[-1].weight, 0.01)
        nn.init.zeros_(self.pi[-1].bias)

    def dist(self, s):
        return Normal(self.pi(s), self.log_std.exp())


def reset():
    return torch.stack([torch.rand(N_ENV) * 2 - 1, torch.zeros(N_ENV)], 1)


def env_step(s, a):
    a = a.clamp(-1, 1).squeeze(1)
    v = 0.9 * s[:, 1] + 0.2 * a
    x = s[:, 0] + 0.3 * v
    r = -(x ** 2) - 0.05 * a ** 2
    return torch.stack([x, v], 1), r


ac = ActorCritic()
opt = torch.optim.Adam(ac.parameters(), lr=3e-3, eps=1e-5)
for update in range(25):
    s = reset()
    S, A, LP, R, V = [], [], [], [], []
    with torch.no_grad():
        for t in range(T):
            d = ac.dist(s)
            a = d.sample()
            S.append(s); A.append(a); LP.append(d.log_prob(a).squeeze(1)); V.append(ac.v(s).squeeze(1))
            s, r = env_step(s, a)
            R.append(r)
        last = ac.v(s).squeeze(1)
        adv, gae = [None] * T, torch.zeros(N_ENV)
        for t in reversed(range(T)):
            nxt = last if t == T - 1 else V[t + 1]
            gae = R[t] + 0.97 * nxt - V[t] + 0.97 * 0.95 * gae
            adv[t] = gae
    S, A, LP, V, ADV = torch.cat(S), torch.cat(A), torch.cat(LP), torch.cat(V), torch.cat(adv)
    RET = ADV + V
    for epoch in range(4):
        for b in torch.randperm(N_ENV * T).split(256):
            d = ac.dist(S[b])
            lp = d.log_prob(A[b]).squeeze(1)
            ratio = (lp - LP[b]).exp()
            adv_b = (ADV[b] - ADV[b].mean()) / (ADV[b].std() + 1e-8)
            pg = -torch.min(ratio * adv_b, ratio.clamp(0.8, 1.2) * adv_b).mean()
            vf = 0.5 * (ac.v(S[b]).squeeze(1) - RET[b]).pow(2).mean()
            loss = pg + 0.5 * vf - 0.001 * d.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(ac.parameters(), 0.5)
            opt.step()
    if update % 5 == 4:
        print(f"update {update + 1} return {torch.stack(R).sum(0).mean():.3f} pg {pg.item():+.4f} vf {vf.item():.4f} std {ac.log_std.exp().item():.3f}")
