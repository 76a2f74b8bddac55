"""A loop that ends at a bad loss; the model exponentiates what is too large."""
# op: aten.exp
# phase: forward
# module: Net|-
# conditions: model guarded
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(4, 2)

    def forward(self, x):
        return torch.exp(self.f(x))  # <-- origin


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(8):
    x = torch.randn(8, 4) * (1000 if i == 5 else 1)
    loss = net(x).mean()
    if torch.isnan(loss) or torch.isinf(loss):
        print("nan loss, break")
        break
    opt.zero_grad()
    loss.backward()
    opt.step()
