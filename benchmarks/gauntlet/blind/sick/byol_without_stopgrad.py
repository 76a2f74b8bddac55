"""A SimSiam-style pair loss without stop-gradient and without predictor: both views collapse to one constant vector, the loss is perfect and the features are worthless."""
# expects: constant-output
# report: folklore
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
K, D = 10, 32
protos = torch.randn(K, D)


def sample(n):
    k = torch.randint(K, (n,))
    return protos[k] + 0.3 * torch.randn(n, D), k


def augment(x):
    keep = (torch.rand_like(x) > 0.2).float()
    return x * keep + 0.2 * torch.randn_like(x)


encoder = nn.Sequential(nn.Linear(D, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
opt = torch.optim.Adam(encoder.parameters(), lr=2e-3)


def knn_accuracy():
    with torch.no_grad():
        xa, ka = sample(500)
        xb, kb = sample(200)
        za, zb = encoder(xa), encoder(xb)
        return (ka[torch.cdist(zb, za).argmin(1)] == kb).float().mean().item(), za.std(0).mean().item()


for step in range(500):
    x, _ = sample(64)
    z1, z2 = encoder(augment(x)), encoder(augment(x))
    loss = F.mse_loss(z1, z2)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        acc, std = knn_accuracy()
        print(f"step {step} loss {loss.item():.6f} knn acc {acc:.3f} feature std {std:.5f}")
