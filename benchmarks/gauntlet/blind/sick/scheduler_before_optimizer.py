"""scheduler.step() at the top of every epoch, before any optimizer.step() (pre-1.1 habit): the first and largest value of the schedule is skipped and PyTorch warns."""
# expects: scheduler-order
# report: https://github.com/michuanhaohao/reid-strong-baseline/issues/190
import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(1600, 10)
y = torch.sin(x[:, :3]).sum(1, keepdim=True) + 0.05 * torch.randn(1600, 1)
model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.4)
it = 0
for epoch in range(10):
    scheduler.step()
    for idx in torch.randperm(1600).split(40):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[idx]), y[idx])
        loss.backward()
        optimizer.step()
        it += 1
    print(f"epoch {epoch} it {it} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.4g}")
