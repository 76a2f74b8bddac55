"""GradScaler with unscale_ and clipping. The scale starts too high, so the first steps are skipped."""
# run: status=healthy steps=40
import torch
from torch import nn
from torch.amp import GradScaler, autocast

torch.manual_seed(1)
x = torch.randn(256, 16)
y = (x ** 2).sum(1, keepdim=True) / 16
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = GradScaler("cpu", init_scale=2.0**22, growth_interval=15)

for it in range(40):
    idx = torch.randperm(256)[:64]
    optimizer.zero_grad()
    with autocast("cpu", dtype=torch.float16):
        pred = model(x[idx])
        loss = nn.functional.mse_loss(pred.float(), y[idx])
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() < before:
        print(f"iter {it}: overflow, scale {before:.0f} -> {scaler.get_scale():.0f}")
    elif it % 8 == 0:
        print(f"iter {it}: loss {loss.item():.6f} scale {scaler.get_scale():.0f}")

torch.save({"model": model.state_dict(), "scaler": scaler.state_dict()}, "weights.pt")
