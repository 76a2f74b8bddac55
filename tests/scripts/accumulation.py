"""Gradient accumulation, ten micro-batches of an epoch in groups of four: the last group has two."""
# run: status=healthy steps=18
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATE = 4
EPOCHS = 6

torch.manual_seed(0)
x = torch.randn(160, 12)
y = torch.sin(x).sum(1, keepdim=True)
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(1))
model = nn.Sequential(nn.Linear(12, 64), nn.SiLU(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loss_fn = nn.MSELoss()

n_updates = 0
for epoch in range(EPOCHS):
    total = 0.0
    optimizer.zero_grad()
    for i, (xb, yb) in enumerate(loader):
        loss = loss_fn(model(xb), yb) / ACCUMULATE
        loss.backward()
        total += loss.item() * ACCUMULATE
        if (i + 1) % ACCUMULATE == 0 or (i + 1) == len(loader):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()
            n_updates += 1
    print(f"epoch {epoch}: loss {total / len(loader):.6f}, {n_updates} updates")
torch.save(model.state_dict(), "weights.pt")
