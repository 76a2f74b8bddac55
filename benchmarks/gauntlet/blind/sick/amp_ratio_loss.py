"""Under a GradScaler the relative-error loss divides by targets that are sometimes 0: the gradient is inf in nearly every step, the scaler skips and halves for ever."""
# expects: amp-scale-collapse, nonfinite-gradient, nonfinite-loss
# report: https://github.com/facebookresearch/WSL-Images/issues/9
import torch
import torch.nn as nn

torch.manual_seed(9)


class Meter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        self.head = nn.Linear(96, 1)

    def forward(self, x):
        return self.head(self.body(x))


teacher = torch.randn(16, 1)


def load(n):
    x = torch.randn(n, 16)
    usage = (x @ teacher + 2).clamp(min=0)  # consumption cannot be negative
    return x, usage


def mape(pred, target):
    return ((pred - target).abs() / target).mean()


model = Meter()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
X, Y = load(6400)
for epoch in range(4):
    order = torch.randperm(len(X))
    for k in range(0, len(X), 64):
        sel = order[k:k + 64]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(X[sel])
        loss = mape(out.float(), Y[sel])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    with torch.no_grad():
        mae = (model(X) - Y).abs().mean().item()
    print(f"epoch {epoch}: loss {loss.item():.4f}  mae {mae:.4f}  scale {scaler.get_scale():.3g}")
