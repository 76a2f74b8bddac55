"""DP-SGD by hand with torch.func: per-sample gradients clipped to norm 1 and Gaussian noise added, gradients written into p.grad without any backward() call."""
# expects:
# source: https://arxiv.org/abs/1607.00133
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
w = torch.randn(4, 10)
X = torch.randn(6000, 10)
Y = (X @ w.T + 0.3 * torch.randn(6000, 4)).argmax(1)
Xtr, Ytr, Xte, Yte = X[:5000], Y[:5000], X[5000:], Y[5000:]
model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
C, sigma, B = 1.0, 0.8, 256


def sample_loss(params, x, y):
    return F.cross_entropy(functional_call(model, params, (x.unsqueeze(0),)), y.unsqueeze(0))


per_sample_grads = vmap(grad(sample_loss), in_dims=(None, 0, 0))
for step in range(200):
    idx = torch.randperm(5000)[:B]
    params = {k: v.detach() for k, v in model.named_parameters()}
    g = per_sample_grads(params, Xtr[idx], Ytr[idx])
    norms = torch.stack([v.flatten(1).norm(dim=1) for v in g.values()]).norm(dim=0)
    scale = (C / norms).clamp(max=1.0)
    for name, p in model.named_parameters():
        summed = torch.einsum("b,b...->...", scale, g[name])
        p.grad = (summed + sigma * C * torch.randn_like(p)) / B
    optimizer.step()
    optimizer.zero_grad()
    if step % 40 == 39:
        with torch.no_grad():
            o = model(Xte)
        print(f"step {step + 1} test loss {F.cross_entropy(o, Yte):.4f} acc {(o.argmax(1) == Yte).float().mean():.3f} mean grad norm {norms.mean():.2f}")
