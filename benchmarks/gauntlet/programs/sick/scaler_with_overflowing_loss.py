"""Mixed precision with a loss that always overflows float16: the scaler halves and halves."""
# expects: amp-scale-collapse, nonfinite-gradient, nonfinite-activation, nonfinite-loss
# report: https://github.com/facebookresearch/WSL-Images/issues/9

import torch
import torch.nn as nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 128)
        self.b = nn.Linear(64, 128)

    def forward(self, x, y):
        # unnormalised dot products in half: sums beyond 65504
        return self.a(x) @ self.b(y).T


torch.manual_seed(0)
model = Scorer()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for step in range(60):
    x = torch.randn(32, 64) * 60
    y = x + torch.randn(32, 64)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        scores = model(x, y)
    loss = nn.functional.cross_entropy(scores.float(), torch.arange(32))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(step, scaler.get_scale(), loss.item())
