"""A network that grows: a new block is put in and its parameters are added to the running optimizer."""
# run: status=healthy steps=60
# when: thorough
import torch
from torch import nn

torch.manual_seed(12)


class Growing(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 32)
        self.blocks = nn.ModuleList()
        self.head = nn.Linear(32, 1)

    def grow(self):
        block = nn.Sequential(nn.ReLU(), nn.Linear(32, 32))
        self.blocks.append(block)
        return block

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(torch.relu(x))


net = Growing()
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
x = torch.randn(256, 4)
y = torch.sin(3 * x[:, :1]) + x[:, 1:2]
for it in range(60):
    if it in (20, 40):
        opt.add_param_group({"params": net.grow().parameters(), "lr": 2e-3})
    i = torch.randperm(256)[:64]
    loss = nn.functional.mse_loss(net(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 10 == 9:
        print(it + 1, len(opt.param_groups), sum(1 for _ in net.parameters()), loss.item())
torch.save(net.state_dict(), "weights.pt")
