"""fp16 GradScaler on CPU with gradient accumulation over 4 micro-batches, unscale before clipping; a few skipped steps while the huge initial scale settles."""
# expects:
# source: https://docs.pytorch.org/docs/stable/notes/amp_examples.html
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
cent = torch.randn(8, 32)
y = torch.randint(0, 8, (6400,))
x = cent[y] + 1.0 * torch.randn(6400, 32)
loader = DataLoader(TensorDataset(x[:5760], y[:5760]), batch_size=16, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 20, growth_interval=200)
loss_fn = nn.CrossEntropyLoss()
accum = 4
optimizer.zero_grad(set_to_none=True)
for epoch in range(3):
    model.train()
    tot = 0.0
    for i, (xb, yb) in enumerate(loader):
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(xb)
            loss = loss_fn(out.float(), yb) / accum
        scaler.scale(loss).backward()
        tot += loss.item() * accum
        if (i + 1) % accum == 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
    model.eval()
    with torch.no_grad():
        acc = (model(x[5760:]).argmax(1) == y[5760:]).float().mean()
    print(f"epoch {epoch} loss {tot / len(loader):.4f} scale {scaler.get_scale():.0f} test acc {acc:.3f}")
