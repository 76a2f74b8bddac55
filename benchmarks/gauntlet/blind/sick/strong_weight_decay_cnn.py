"""SGD with weight_decay 0.5 (meant 5e-4): decay shrinks all weights to nothing, the net puts out the same logits for every image."""
# expects: weight-decay-dominates, constant-output
# report: https://github.com/tflearn/tflearn/issues/772
import argparse
import torch
import torch.nn as nn

p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.05)
p.add_argument("--wd", type=float, default=0.5)
p.add_argument("--epochs", type=int, default=5)
args = p.parse_args([])
torch.manual_seed(0)


def shapes(n, s=16):
    """0 square, 1 cross, 2 frame"""
    img = 0.15 * torch.randn(n, 1, s, s)
    lab = torch.randint(3, (n,))
    for i in range(n):
        r, c = torch.randint(1, s - 8, (2,)).tolist()
        if lab[i] == 0:
            img[i, 0, r:r + 7, c:c + 7] += 1
        elif lab[i] == 1:
            img[i, 0, r + 3, c:c + 7] += 1
            img[i, 0, r:r + 7, c + 3] += 1
        else:
            img[i, 0, r:r + 7, c:c + 7] += 1
            img[i, 0, r + 1:r + 6, c + 1:c + 6] -= 1
    return img, lab


xtr, ytr = shapes(2000)
xte, yte = shapes(400)
net = nn.Sequential(nn.Conv2d(1, 12, 5, 2, 2), nn.ReLU(), nn.Conv2d(12, 24, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 16, 3))
opt = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=args.wd)
for ep in range(args.epochs):
    for b in torch.randperm(2000).split(40):
        loss = nn.functional.cross_entropy(net(xtr[b]), ytr[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        print("epoch", ep, "loss", round(loss.item(), 4), "test acc", (net(xte).argmax(1) == yte).float().mean().item())
