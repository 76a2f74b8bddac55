"""Small U-Net with Dice+BCE on images where only ~5% of the pixels are foreground: heavy pixel imbalance, but Dice goes over 0.9."""
# expects:
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader


class Blobs(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100003 + i)
        yy, xx = torch.meshgrid(torch.arange(24.), torch.arange(24.), indexing="ij")
        cx, cy = torch.rand(2, generator=g) * 16 + 4
        r = torch.rand(1, generator=g) * 1.5 + 2
        m = (((xx - cx) ** 2 + (yy - cy) ** 2).sqrt() < r).float()
        img = m * 1.2 + 0.4 * torch.randn(24, 24, generator=g) + 0.5 * torch.sin(xx / 4)
        return img[None], m[None]


def dc(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2, self.mid = dc(1, 8), dc(8, 16), dc(16, 16)
        self.u2, self.u1 = dc(32, 16), dc(24, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        x = self.u2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        x = self.u1(torch.cat([F.interpolate(x, scale_factor=2), a], 1))
        return self.out(x)


def dice_loss(logits, t, eps=1.0):
    p = torch.sigmoid(logits)
    inter = (p * t).sum((1, 2, 3))
    return 1 - ((2 * inter + eps) / (p.sum((1, 2, 3)) + t.sum((1, 2, 3)) + eps)).mean()


torch.manual_seed(0)
net = UNet()
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
tr = DataLoader(Blobs(1200, 1), batch_size=24, shuffle=True)
va = DataLoader(Blobs(150, 2), batch_size=50)
for epoch in range(3):
    net.train()
    for img, mask in tr:
        lg = net(img)
        loss = F.binary_cross_entropy_with_logits(lg, mask) + dice_loss(lg, mask)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    net.eval()
    d = 0
    with torch.no_grad():
        for img, mask in va:
            p = (net(img) > 0).float()
            d += (2 * (p * mask).sum() / (p.sum() + mask.sum())).item() / len(va)
    print(f"epoch {epoch}: last loss {loss.item():.3f} val dice {d:.3f}")
