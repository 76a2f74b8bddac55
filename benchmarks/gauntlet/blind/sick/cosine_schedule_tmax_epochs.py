"""CosineAnnealingLR(T_max=epochs) is stepped after every batch: the learning rate goes down and up again every 10 batches and ends near its maximum."""
# expects: lr-jump, scheduler-order, loss-oscillation
# report: https://github.com/ivadomed/ivadomed/issues/57
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(42)
EPOCHS = 10
x = torch.randn(3200, 12)
W = torch.randn(12, 5)
y = (torch.tanh(x @ W) @ torch.randn(5, 6) + 0.3 * torch.randn(3200, 6)).argmax(1)
train_set, val_set = random_split(TensorDataset(x, y), [2560, 640])
train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
val_loader = DataLoader(val_set, batch_size=128)

model = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 6))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)

for epoch in range(EPOCHS):
    model.train()
    running = 0.0
    for inputs, labels in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        running += loss.item()
    model.eval()
    correct = 0
    with torch.no_grad():
        for inputs, labels in val_loader:
            correct += (model(inputs).argmax(1) == labels).sum().item()
    print(f"epoch {epoch+1}/{EPOCHS} loss {running/len(train_loader):.4f} val_acc {correct/640:.4f} lr {scheduler.get_last_lr()[0]:.4f}")
