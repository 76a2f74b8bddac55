"""Transfer learning: the head first, then everything with a new optimizer and smaller steps. One model, one training."""
# run: status=healthy steps=60
# when: thorough
import torch
from torch import nn

torch.manual_seed(21)

backbone = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
head = nn.Linear(32, 4)
model = nn.Sequential(backbone, head)

x = torch.randn(256, 16)
y = (x[:, :4] + 0.2 * torch.randn(256, 4)).argmax(1)


def run(optimizer, steps, tag):
    for step in range(steps):
        i = torch.randint(256, (32,))
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(tag, "loss", loss.item(), "trainable", sum(p.numel() for p in model.parameters() if p.requires_grad))


for p in backbone.parameters():
    p.requires_grad = False
run(torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=5e-3), 30, "head:")

for p in backbone.parameters():
    p.requires_grad = True
run(torch.optim.Adam([
    {"params": backbone.parameters(), "lr": 1e-3},
    {"params": head.parameters(), "lr": 3e-3},
]), 30, "all:")

torch.save(model.state_dict(), "weights.pt")
