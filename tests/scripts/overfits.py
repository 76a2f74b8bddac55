"""Few samples, noisy labels, a large network, and a validation loss that nobody looks at."""
# run: status=warning steps=240
# when: thorough
# findings: overfitting

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def sample(n):
    x = torch.randn(n, 20)
    return x, (x[:, 0] + x[:, 1] + 1.5 * torch.randn(n) > 0).long()


x_train, y_train = sample(128)
x_val, y_val = sample(512)

net = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)

for epoch in range(60):
    net.train()
    for i in torch.randperm(128).split(32):
        loss = F.cross_entropy(net(x_train[i]), y_train[i])
        opt.zero_grad()
        loss.backward()
        opt.step()

    net.eval()
    with torch.no_grad():
        val_loss = F.cross_entropy(net(x_val), y_val).item()
    if epoch % 10 == 9:
        print(f"epoch {epoch + 1} train {loss.item():.4f} val {val_loss:.4f}")

torch.save(net.state_dict(), "weights.pt")
