"""OneCycleLR, stepped after every batch."""
# run: status=healthy steps=60
# when: thorough
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(320, 20)
y = (x @ torch.randn(20, 5)).argmax(1)
model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 5))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.2, epochs=6, steps_per_epoch=10)
loss_func = nn.CrossEntropyLoss(label_smoothing=0.1)
for epoch in range(6):
    lrs, losses = [], []
    for idx in torch.randperm(320).split(32):
        loss = loss_func(model(x[idx]), y[idx])
        loss.backward()
        opt.step()
        opt.zero_grad()
        lrs.append(sched.get_last_lr()[0])
        sched.step()
        losses.append(loss.item())
    print(f"{epoch} lr {lrs[0]:.5f}..{lrs[-1]:.5f} momentum {opt.param_groups[0]['momentum']:.4f} loss {sum(losses) / 10:.5f}")
torch.save(model.state_dict(), "weights.pt")
