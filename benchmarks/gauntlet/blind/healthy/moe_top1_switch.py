"""Switch-style top-1 mixture of experts with a load-balancing loss: every expert sees only part of the batch, some get no token in some steps."""
# expects:
# source: https://arxiv.org/abs/2101.03961
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
D, E = 8, 6
cent = torch.randn(E, D) * 3
Wt = torch.randn(E, D, 3)


def batch(n):
    k = torch.randint(0, E, (n,))
    x = cent[k] + 0.8 * torch.randn(n, D)
    y = torch.einsum("nd,ndo->no", x - cent[k], Wt[k])
    return x / 3, y / 3


class SwitchFFN(nn.Module):
    def __init__(self, d, h, o, n_exp):
        super().__init__()
        self.router = nn.Linear(d, n_exp)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, o)) for _ in range(n_exp))

    def forward(self, x):
        xr = x * (1 + 0.02 * torch.randn_like(x)) if self.training else x
        probs = self.router(xr).softmax(-1)
        gate, idx = probs.max(-1)
        out = x.new_zeros(len(x), 3)
        for e, expert in enumerate(self.experts):
            sel = (idx == e).nonzero().squeeze(1)
            if len(sel):
                out = out.index_add(0, sel, gate[sel, None] * expert(x[sel]))
        frac = F.one_hot(idx, len(self.experts)).float().mean(0)
        aux = len(self.experts) * (frac * probs.mean(0)).sum()
        return out, aux, frac


net = SwitchFFN(D, 32, 3, 6)
opt = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, 500)
for i in range(500):
    net.train()
    x, y = batch(128)
    out, aux, frac = net(x)
    loss = F.mse_loss(out, y) + 0.1 * aux
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    sched.step()
    if i % 100 == 99:
        net.eval()
        with torch.no_grad():
            x, y = batch(2000)
            o, aux, frac = net(x)
            print(f"{i + 1} train {loss.item():.4f} test mse {F.mse_loss(o, y).item():.4f} (var {y.var().item():.3f}) load {[round(f, 2) for f in frac.tolist()]}")
