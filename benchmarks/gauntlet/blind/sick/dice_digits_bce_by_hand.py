"""Binary cross-entropy written by hand with log(p); the sigmoid saturates to exactly 1 and 0*log(0) makes the loss NaN."""
# expects: nonfinite-loss, nonfinite-gradient
# report: https://github.com/hwalsuklee/tensorflow-mnist-VAE/issues/4
import torch
import torch.nn as nn

torch.manual_seed(5)


def draw(n):
    """little 12x12 images of dice faces 1..6"""
    pts = {1: [(6, 6)], 2: [(2, 2), (9, 9)], 3: [(2, 2), (6, 6), (9, 9)], 4: [(2, 2), (2, 9), (9, 2), (9, 9)],
           5: [(2, 2), (2, 9), (6, 6), (9, 2), (9, 9)], 6: [(2, 2), (2, 6), (2, 9), (9, 2), (9, 6), (9, 9)]}
    k = torch.randint(1, 7, (n,))
    img = torch.zeros(n, 12, 12)
    for i in range(n):
        dx, dy = torch.randint(-1, 2, (2,)).tolist()
        for a, b in pts[int(k[i])]:
            img[i, a + dx:a + dx + 2, b + dy:b + dy + 2] = 1.0
    return img.view(n, -1)


class AE(nn.Module):
    def __init__(self, z=24):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(144, 128), nn.ReLU(), nn.Linear(128, z))
        self.dec = nn.Sequential(nn.Linear(z, 128), nn.ReLU(), nn.Linear(128, 144))

    def forward(self, x):
        return torch.sigmoid(self.dec(self.enc(x)))


def bce(p, t):
    return -(t * torch.log(p) + (1 - t) * torch.log(1 - p)).sum(1).mean()


train = draw(3000)
model = AE()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)

step = 0
for epoch in range(16):
    perm = torch.randperm(len(train))
    for idx in perm.split(64):
        x = train[idx]
        optimizer.zero_grad()
        recon = model(x)
        loss = bce(recon, x)
        loss.backward()
        optimizer.step()
        step += 1
    with torch.no_grad():
        err = ((model(train) > 0.5).float() != train).float().mean()
    print(f"epoch {epoch:2d} step {step} recon loss {loss.item():.4f} pixel err {err:.4f}")
