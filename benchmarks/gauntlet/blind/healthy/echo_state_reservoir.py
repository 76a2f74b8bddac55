"""Echo state network: the big recurrent matrix and input matrix are random buffers that are never trained, only the linear readout is; that is the method."""
# expects:
import torch
import torch.nn as nn

torch.manual_seed(0)


def narma(T):
    u = torch.rand(T) * 0.4
    y = torch.zeros(T)
    for t in range(9, T - 1):
        y[t + 1] = 0.3 * y[t] + 0.05 * y[t] * y[t - 9:t + 1].sum() + 1.5 * u[t - 9] * u[t] + 0.1
    return u, y


class ESN(nn.Module):
    def __init__(self, n=200, rho=0.9, density=0.05):
        super().__init__()
        W = torch.randn(n, n) * (torch.rand(n, n) < density)
        W *= rho / torch.linalg.eigvals(W).abs().max()
        self.register_buffer("W", W)
        self.register_buffer("Win", torch.rand(n, 2) - 0.5)
        self.readout = nn.Linear(n + 1, 1)

    @torch.no_grad()
    def states(self, u):
        h, out = torch.zeros(self.W.size(0)), []
        for v in u:
            h = torch.tanh(self.W @ h + self.Win @ torch.stack([v * 5 - 1, torch.tensor(1.0)]))
            out.append(torch.cat([h, v[None]]))
        return torch.stack(out)

    def forward(self, s):
        return self.readout(s).squeeze(1)


esn = ESN()
u, y = narma(2500)
S = esn.states(u)
mu, sd = y[200:1800].mean(), y[200:1800].std()
yz = (y - mu) / sd
Sm, Ss = S[200:1800].mean(0), S[200:1800].std(0)
S = (S - Sm) / Ss
train_idx = torch.arange(200, 1800)
opt = torch.optim.Adam(esn.parameters(), lr=5e-3)
sch = torch.optim.lr_scheduler.ExponentialLR(opt, 0.93)
for epoch in range(25):
    for b in train_idx[torch.randperm(1600)].split(64):
        loss = (esn(S[b]) - yz[b]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    sch.step()
    if epoch % 5 == 4:
        with torch.no_grad():
            nmse = (esn(S[1800:]) - yz[1800:]).pow(2).mean().item()
        print(f"epoch {epoch + 1} loss {loss.item():.4f} test NMSE {nmse:.4f}")
