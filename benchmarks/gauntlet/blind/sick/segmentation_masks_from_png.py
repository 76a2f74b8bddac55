"""Masks are read as 0/255 and go into BCEWithLogitsLoss as they are: the loss runs to minus thousands and everything is predicted foreground."""
# expects: label-out-of-range, loss-explosion, loss-input-mismatch
# report: https://github.com/milesial/Pytorch-UNet/issues/78
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader


class Blobs(Dataset):
    """grey images with bright discs, masks as 8 bit png"""

    def __init__(self, n, size=24):
        rng = np.random.default_rng(0)
        yy, xx = np.mgrid[:size, :size]
        self.images, self.masks = [], []
        for _ in range(n):
            cy, cx, r = rng.integers(5, size - 5), rng.integers(5, size - 5), rng.integers(3, 6)
            disc = (yy - cy) ** 2 + (xx - cx) ** 2 <= r * r
            img = rng.normal(90, 20, (size, size)) + 80 * disc
            self.images.append(img.clip(0, 255).astype(np.uint8))
            self.masks.append((disc * 255).astype(np.uint8))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = torch.from_numpy(self.images[i]).float()[None] / 255
        mask = torch.from_numpy(self.masks[i]).float()[None]
        return (img - 0.4) / 0.2, mask


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())


class MiniUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = block(1, 8)
        self.mid = block(8, 16)
        self.up = block(24, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        d = self.down(x)
        m = self.mid(nn.functional.max_pool2d(d, 2))
        m = nn.functional.interpolate(m, scale_factor=2)
        return self.out(self.up(torch.cat([d, m], 1)))


if __name__ == "__main__":
    torch.manual_seed(0)
    dl = DataLoader(Blobs(480), batch_size=16, shuffle=True)
    net = MiniUNet()
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    crit = nn.BCEWithLogitsLoss()
    for epoch in range(4):
        losses, inter, union = [], 0, 0
        for img, mask in dl:
            logit = net(img)
            loss = crit(logit, mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            p, t = logit > 0, mask > 0.5
            inter += (p & t).sum().item()
            union += (p | t).sum().item()
        print(f"epoch {epoch}: loss {np.mean(losses):.3f} IoU {inter/union:.3f}")
