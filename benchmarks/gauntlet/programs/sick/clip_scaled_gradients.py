"""Mixed precision U-Net training that clips before scaler.unscale_."""
# expects: ineffective-clipping
# report: https://github.com/milesial/Pytorch-UNet/issues/468

import torch
import torch.nn as nn


class TinyUNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 8, 3, padding=1)
        self.mid = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, x):
        d = torch.relu(self.down(x))
        m = torch.relu(self.mid(nn.functional.max_pool2d(d, 2)))
        m = nn.functional.interpolate(m, scale_factor=2)
        return self.up(torch.cat([d, m], 1))


torch.manual_seed(0)
model = TinyUNet()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9)
grad_scaler = torch.amp.GradScaler("cpu")
criterion = nn.BCEWithLogitsLoss()
for step in range(80):
    masks = (nn.functional.interpolate(torch.rand(4, 1, 4, 4), size=16, mode="bilinear") > 0.5).float()
    images = masks + 0.3 * torch.randn_like(masks)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        masks_pred = model(images)
        loss = criterion(masks_pred.float(), masks)
    optimizer.zero_grad(set_to_none=True)
    grad_scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    grad_scaler.step(optimizer)
    grad_scaler.update()
    if step % 20 == 0:
        print(step, loss.item())
