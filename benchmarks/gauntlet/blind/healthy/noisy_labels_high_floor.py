"""Training with 40% symmetric label noise: the loss flattens at a high floor (the entropy of the noise) and train accuracy never exceeds 65%, yet clean test accuracy is high."""
# expects:
import torch
import torch.nn as nn

torch.manual_seed(0)
K = 5
cent = torch.randn(K, 10) * 1.4


def clean(n):
    y = torch.randint(0, K, (n,))
    return cent[y] + torch.randn(n, 10), y


X, y_clean = clean(20000)
flip = torch.rand(20000) < 0.4
y_noisy = torch.where(flip, torch.randint(0, K, (20000,)), y_clean)
Xt, yt = clean(2000)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, K))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=4)
lossf = nn.CrossEntropyLoss()
for ep in range(4):
    tl = ta = 0
    for b in torch.randperm(20000).split(200):
        o = model(X[b])
        loss = lossf(o, y_noisy[b])
        opt.zero_grad(); loss.backward(); opt.step()
        tl += loss.item() / 100
        ta += (o.argmax(1) == y_noisy[b]).float().mean().item() / 100
    sched.step()
    with torch.no_grad():
        acc = (model(Xt).argmax(1) == yt).float().mean().item()
    print(f"epoch {ep + 1}: noisy train loss {tl:.4f} noisy train acc {ta:.3f} clean test acc {acc:.3f}")
