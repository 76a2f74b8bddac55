"""Streaming training over shards; the third shard was exported in millimetres instead of metres: from there on inputs are 1000x larger than anything before."""
# expects: input-drift, loss-spike, loss-explosion
# report: folklore
import torch
import torch.nn as nn

torch.manual_seed(0)
net_true = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))


def shard(k, n=3200):
    g = torch.Generator().manual_seed(k)
    x = torch.randn(n, 6, generator=g)
    with torch.no_grad():
        y = 2 * net_true(x)
    if k == 2:
        x = x * 1000.0  # exported by the new tool
    return x, y


def stream(n_shards, bs=32):
    for k in range(n_shards):
        x, y = shard(k)
        for i in range(0, len(x), bs):
            yield k, x[i:i + bs], y[i:i + bs]


model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, (k, x, y) in enumerate(stream(4)):
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"shard {k} step {step} loss {loss.item():.5f}")
