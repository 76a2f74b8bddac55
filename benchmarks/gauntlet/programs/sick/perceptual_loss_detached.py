"""Style transfer network: features of the output are taken with .detach() (copied from the target's line)."""
# expects: detached-loss

import torch
import torch.nn as nn

torch.manual_seed(0)
vgg = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
for p in vgg.parameters():
    p.requires_grad_(False)
net = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 3, 3, padding=1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(80):
    images = nn.functional.interpolate(torch.rand(6, 3, 5, 5), size=16, mode="bilinear")
    out = net(images)
    feature_loss = nn.functional.mse_loss(vgg(out).detach(), vgg(images).detach())
    tv = (out[..., 1:] - out[..., :-1]).abs().mean() + (out[..., 1:, :] - out[..., :-1, :]).abs().mean()
    loss = 5.0 * feature_loss + 0.1 * tv
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, feature_loss.item(), tv.item())
