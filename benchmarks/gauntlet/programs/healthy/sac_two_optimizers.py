"""Soft actor-critic: twin critics, a frozen target by polyak averaging, two optimizers, a learned temperature."""

import copy

import torch
import torch.nn as nn

torch.manual_seed(0)


def net(i, o):
    return nn.Sequential(nn.Linear(i, 48), nn.ReLU(), nn.Linear(48, o))


actor, critics = net(3, 2), nn.ModuleList([net(4, 1), net(4, 1)])
target = copy.deepcopy(critics).requires_grad_(False)
log_alpha = torch.zeros(1, requires_grad=True)
opt_a = torch.optim.Adam(actor.parameters(), lr=1e-3)
opt_c = torch.optim.Adam(critics.parameters(), lr=1e-3)
opt_t = torch.optim.Adam([log_alpha], lr=1e-3)


def act(s):
    mean, log_std = actor(s).chunk(2, 1)
    dist = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    u = dist.rsample()
    a = torch.tanh(u)
    return a, (dist.log_prob(u) - torch.log(1 - a.pow(2) + 1e-6)).sum(1, keepdim=True)


buffer = []
state = torch.randn(16, 3)
for step in range(200):
    with torch.no_grad():
        action, _ = act(state)
    following = 0.8 * state + 0.3 * action + 0.2 * torch.randn(16, 3)
    buffer.append((state, action, -following.pow(2).sum(1, keepdim=True), following))
    buffer = buffer[-100:]
    state = following
    s, a, r, n = (torch.cat(z) for z in zip(*[buffer[k] for k in torch.randint(0, len(buffer), (4,))]))
    with torch.no_grad():
        na, nlogp = act(n)
        q = torch.min(*[t(torch.cat([n, na], 1)) for t in target])
        backup = r + 0.9 * (q - log_alpha.exp() * nlogp)
    loss_c = sum(nn.functional.mse_loss(c(torch.cat([s, a], 1)), backup) for c in critics)
    opt_c.zero_grad()
    loss_c.backward()
    opt_c.step()
    pa, logp = act(s)
    loss_a = (log_alpha.exp().detach() * logp - torch.min(*[c(torch.cat([s, pa], 1)) for c in critics])).mean()
    opt_a.zero_grad()
    loss_a.backward()
    opt_a.step()
    loss_t = -(log_alpha * (logp.detach() - 1.0)).mean()
    opt_t.zero_grad()
    loss_t.backward()
    opt_t.step()
    with torch.no_grad():
        for t, c in zip(target.parameters(), critics.parameters()):
            t.lerp_(c, 0.01)
    if step % 50 == 0:
        print(step, loss_c.item(), loss_a.item())
