"""First trains a small net, then freezes it and optimises an input image (the only thing in the second optimizer) by gradient ascent: the loss is a negative logit going steadily down below zero."""
# expects:
# source: https://distill.pub/2017/feature-visualization/
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
yy, xx = torch.meshgrid(torch.linspace(-1, 1, 12), torch.linspace(-1, 1, 12), indexing="ij")


def images(n):
    y = torch.randint(0, 4, (n,))
    cx = torch.tensor([-0.5, 0.5, -0.5, 0.5])[y].view(-1, 1, 1) + 0.1 * torch.randn(n, 1, 1)
    cy = torch.tensor([-0.5, -0.5, 0.5, 0.5])[y].view(-1, 1, 1) + 0.1 * torch.randn(n, 1, 1)
    im = torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / 0.1)
    return im.unsqueeze(1) + 0.3 * torch.randn(n, 1, 12, 12), y


net = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12 * 36, 4))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for i in range(120):
    x, y = images(48)
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
net.eval().requires_grad_(False)
with torch.no_grad():
    x, y = images(500)
    print(f"classifier acc {(net(x).argmax(1) == y).float().mean():.3f}")

target = 2
img = (0.01 * torch.randn(1, 1, 12, 12)).requires_grad_(True)
img_opt = torch.optim.Adam([img], lr=0.05)
for i in range(150):
    jit = torch.roll(img, torch.randint(-1, 2, (2,)).tolist(), (2, 3))
    tv = (img[..., 1:] - img[..., :-1]).pow(2).mean() + (img[..., 1:, :] - img[..., :-1, :]).pow(2).mean()
    obj = -net(jit)[0, target] + 20.0 * tv + 40.0 * img.pow(2).mean()
    img_opt.zero_grad()
    obj.backward()
    img_opt.step()
    if i % 50 == 49:
        print(f"step {i + 1} objective {obj.item():.3f} p(target) {net(img.detach()).softmax(1)[0, target]:.4f}")
peak = img.detach()[0, 0].argmax().item()
print("brightest pixel at row, col", divmod(peak, 12), "(target corner is bottom left)")
