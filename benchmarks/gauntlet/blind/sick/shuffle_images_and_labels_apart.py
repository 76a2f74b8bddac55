"""Images and labels are shuffled by two separate random permutations: the labels have nothing to do with the images, training stays at ln(classes) or memorises."""
# expects: shuffled-labels, loss-plateau
# report: https://github.com/xudonmao/VMT/issues/1
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

np.random.seed(0)
torch.manual_seed(0)


def load():
    X, Y = [], []
    for k in range(4):
        for _ in range(600):
            im = np.random.normal(0, 0.3, (10, 10))
            r, c = np.random.randint(0, 5, 2)
            im[r + (k // 2) * 2:r + 3 + (k // 2) * 2, c:c + 5 if k % 2 else c + 3] += 1.0
            X.append(im)
            Y.append(k)
    return np.array(X, dtype=np.float32)[:, None], np.array(Y)


images, labels = load()
np.random.shuffle(images)
np.random.shuffle(labels)
x, y = torch.from_numpy(images), torch.from_numpy(labels).long()
xt, yt, xv, yv = x[:2000], y[:2000], x[2000:], y[2000:]

net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(8):
    order = torch.randperm(2000)
    for k in range(0, 2000, 40):
        b = order[k:k + 40]
        loss = F.cross_entropy(net(xt[b]), yt[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        print(epoch, "loss", round(loss.item(), 4), "val acc", (net(xv).argmax(1) == yv).float().mean().item())
