"""StepLR(step_size=3, gamma=0.1) was meant per epoch, but scheduler.step() sits in the batch loop: after 20 batches the learning rate is gone and the loss stands still."""
# expects: scheduler-order, lr-jump, lr-too-low
# report: https://github.com/Lornatang/SRGAN-PyTorch/issues/1
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
lo = torch.rand(1200, 1, 4, 4)
hi = F.interpolate(lo, scale_factor=3, mode="bicubic", align_corners=False)
hi = hi + 0.15 * torch.sin(12 * hi)
loader = DataLoader(TensorDataset(lo, hi), batch_size=24, shuffle=True)


class SRNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())
        self.up = nn.Sequential(nn.Conv2d(24, 9, 3, padding=1), nn.PixelShuffle(3))

    def forward(self, x):
        return self.up(self.body(x))


net = SRNet()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)
for epoch in range(9):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item()
    print(f"Epoch {epoch}: mse {total/len(loader):.5f} lr {optimizer.param_groups[0]['lr']:.2e}")
