"""Pixel values 0..255 are fed to a tanh network without scaling: the first layer sits at +-1 for every image, its gradient is almost nothing."""
# expects: saturated-units, unnormalized-input
# report: https://stats.stackexchange.com/questions/352036/what-should-i-do-when-my-neural-network-doesnt-learn
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import TensorDataset, DataLoader

rng = np.random.RandomState(0)
torch.manual_seed(0)
SEG = {0: "abcdef", 1: "bc", 2: "abged", 3: "abgcd", 4: "fgbc", 5: "afgcd", 6: "afgedc", 7: "abc", 8: "abcdefg", 9: "abcdfg"}
BARS = {"a": (1, slice(2, 8)), "g": (6, slice(2, 8)), "d": (11, slice(2, 8)), "f": (slice(1, 7), 2), "b": (slice(1, 7), 7),
        "e": (slice(6, 12), 2), "c": (slice(6, 12), 7)}


def digit(k):
    img = rng.randint(0, 60, (13, 10))
    for s in SEG[k]:
        r, c = BARS[s]
        img[r, c] = rng.randint(120, 256)
    return np.roll(img, rng.randint(-1, 2), axis=1)


labels = rng.randint(0, 10, 3000)
images = np.stack([digit(k) for k in labels]).astype(np.float32).reshape(3000, -1)
dl = DataLoader(TensorDataset(torch.from_numpy(images[:2500]), torch.from_numpy(labels[:2500]).long()), batch_size=50, shuffle=True)
xv, yv = torch.from_numpy(images[2500:]), torch.from_numpy(labels[2500:]).long()

net = nn.Sequential(nn.Linear(130, 64), nn.Tanh(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for epoch in range(8):
    for xb, yb in dl:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(xb), yb)
        loss.backward()
        opt.step()
    with torch.no_grad():
        acc = (net(xv).argmax(1) == yv).float().mean().item()
    print("epoch %d loss %.4f val acc %.3f" % (epoch, loss.item(), acc))
