"""torch.manual_seed at the start of every step 'for reproducibility': the same random batch each time."""
# expects: repeated-batch

import torch
import torch.nn as nn

SEED = 1234


def sample_batch(data, targets, size=24):
    torch.manual_seed(SEED)
    idx = torch.randint(0, len(data), (size,))
    return data[idx], targets[idx]


torch.manual_seed(0)
data = torch.randn(2000, 8)
targets = torch.sin(data.sum(1, keepdim=True))
net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(150):
    x, y = sample_batch(data, targets)
    loss = (net(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(step, loss.item())
