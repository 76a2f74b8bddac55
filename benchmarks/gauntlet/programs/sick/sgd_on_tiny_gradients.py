"""A denoiser with plain SGD at 1e-5 (the rate of somebody's fine-tuning): the weights hardly move."""
# expects: lr-too-low, update-ratio-low, loss-plateau

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1)
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for step in range(150):
    clean = torch.nn.functional.interpolate(torch.rand(8, 1, 4, 4), size=16, mode="bilinear")
    noisy = clean + 0.1 * torch.randn_like(clean)
    loss = nn.functional.mse_loss(model(noisy), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
