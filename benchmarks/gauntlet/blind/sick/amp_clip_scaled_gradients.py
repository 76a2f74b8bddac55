"""With GradScaler the gradients are clipped to 1.0 without unscale_: the scaled norm is 65536x too large, every update is clipped to nothing, learning is very slow."""
# expects: ineffective-clipping, update-ratio-low
# report: https://github.com/milesial/Pytorch-UNet/issues/468
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
N = 2400
y = torch.randint(0, 6, (N,))
t = torch.linspace(0, 1, 64)
x = torch.sin(2 * torch.pi * (y[:, None] + 2) * t + torch.rand(N, 1)) + 0.3 * torch.randn(N, 64)
train_loader = DataLoader(TensorDataset(x[:2000], y[:2000]), batch_size=40, shuffle=True)
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.GELU(), nn.Linear(64, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
grad_scaler = torch.amp.GradScaler("cpu")
criterion = nn.CrossEntropyLoss()
gradient_clipping = 1.0

for epoch in range(1, 7):
    model.train()
    epoch_loss = 0
    for images, labels in train_loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pred = model(images)
            loss = criterion(pred, labels)
        optimizer.zero_grad(set_to_none=True)
        grad_scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping)
        grad_scaler.step(optimizer)
        grad_scaler.update()
        epoch_loss += loss.item()
    model.eval()
    with torch.no_grad():
        acc = (model(x[2000:]).argmax(1) == y[2000:]).float().mean()
    print(f"epoch {epoch} loss {epoch_loss/len(train_loader):.4f} acc {acc:.3f}")
