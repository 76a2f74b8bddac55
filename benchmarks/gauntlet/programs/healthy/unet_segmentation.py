"""U-Net with skip connections, batch norm, BCE with logits plus Dice, validation between epochs."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def double(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
        nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down, self.up = double(1, 8), double(8, 16), double(24, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down(F.max_pool2d(a, 2))
        return self.out(self.up(torch.cat([a, F.interpolate(b, scale_factor=2)], 1)))


def dice_loss(logits, target):
    p = logits.sigmoid()
    return 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)


def batch(n):
    mask = (F.interpolate(torch.rand(n, 1, 4, 4), size=16, mode="bilinear") > 0.5).float()
    return mask + 0.5 * torch.randn_like(mask), mask


torch.manual_seed(0)
net = UNet()
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", patience=2)
for epoch in range(4):
    net.train()
    for _ in range(25):
        image, mask = batch(8)
        logits = net(image)
        loss = F.binary_cross_entropy_with_logits(logits, mask) + dice_loss(logits, mask)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    net.eval()
    with torch.no_grad():
        image, mask = batch(32)
        val = F.binary_cross_entropy_with_logits(net(image), mask).item()
    scheduler.step(val)
    print(epoch, loss.item(), val)
