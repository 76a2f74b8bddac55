"""FixMatch with 40 labels: the unlabelled term is exactly zero for the first steps because no pseudo-label passes the 0.95 threshold, and pseudo-labels are made under no_grad."""
# expects:
# source: https://arxiv.org/abs/2001.07685
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
K, D = 5, 24
cent = torch.randn(K, D) * 1.1


def draw(n):
    y = torch.arange(n) % K
    return cent[y] + 0.8 * torch.randn(n, D), y


Xl, Yl = draw(40)
Xu, _ = draw(3000)
Xt, Yt = draw(1000)
weak = lambda x: x + 0.1 * torch.randn_like(x)
strong = lambda x: (x + 0.5 * torch.randn_like(x)) * (torch.rand_like(x) > 0.25)
net = nn.Sequential(nn.Linear(D, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, K))
opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9, nesterov=True, weight_decay=5e-4)
for step in range(350):
    i = torch.randint(0, 40, (20,))
    j = torch.randint(0, 3000, (140,))
    logits = net(torch.cat([weak(Xl[i]), strong(Xu[j])]))
    with torch.no_grad():
        prob, pl = net(weak(Xu[j])).softmax(1).max(1)
        mask = (prob >= 0.95).float()
    ls = F.cross_entropy(logits[:20], Yl[i])
    lu = (F.cross_entropy(logits[20:], pl, reduction="none") * mask).mean()
    loss = ls + lu
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0 or step == 349:
        with torch.no_grad():
            acc = (net(Xt).argmax(1) == Yt).float().mean().item()
        print(f"step {step} sup {ls.item():.4f} unsup {lu.item():.4f} mask {mask.mean():.2f} test acc {acc:.3f}")
