"""Fine-tuning with a frozen batch-norm backbone (requires_grad False), but model.train() leaves its batch norms updating running statistics on the new, shifted data."""
# expects: buffer-drift
# report: https://github.com/pytorch/pytorch/issues/86590
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)


def conv_bn(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage1 = conv_bn(1, 8)
        self.stage2 = conv_bn(8, 16)

    def forward(self, x):
        x = F.max_pool2d(self.stage1(x), 2)
        return self.stage2(x).mean((2, 3))


def bars(n, shift=0.0, scale=1.0):
    y = torch.randint(0, 4, (n,))
    i, j = torch.meshgrid(torch.arange(12.), torch.arange(12.), indexing="ij")
    pats = torch.stack([i, j, i + j, i - j])
    img = torch.sin(pats[y] + 6.28 * torch.rand(n, 1, 1)) + 0.3 * torch.randn(n, 12, 12)
    return (img * scale + shift)[:, None], y


def pretrain(backbone, steps=150):
    head = nn.Linear(16, 4)
    opt = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(steps):
        x, y = bars(32)
        loss = F.cross_entropy(head(backbone(x)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("pretrained, loss", loss.item())


class Detector(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.backbone(x))


backbone = Backbone()
pretrain(backbone)
# keep the backbone as it is, it is shared with the other product
for p in backbone.parameters():
    p.requires_grad_(False)
model = Detector(backbone)
print("running mean before", backbone.stage1[1].running_mean[:3])
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
model.train()
for step in range(150):
    x, y = bars(32, shift=2.0, scale=0.5)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(f"step {step} loss {loss.item():.4f}")
print("running mean after", backbone.stage1[1].running_mean[:3])
