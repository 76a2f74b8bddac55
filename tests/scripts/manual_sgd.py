"""An nn.Module, but the update is written by hand under no_grad."""
# run: status=healthy steps=50
# when: thorough
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
lr = 0.2


class LogisticMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1 = nn.Linear(8, 16)
        self.lin2 = nn.Linear(16, 2)

    def forward(self, xb):
        return self.lin2(torch.sigmoid(self.lin1(xb)))


x = torch.randn(320, 8)
y = (x[:, 0] - x[:, 3] > 0).long()
model = LogisticMLP()
bs = 32


def fit():
    for epoch in range(5):
        for i in range(0, 320, bs):
            loss = F.cross_entropy(model(x[i : i + bs]), y[i : i + bs])
            loss.backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= p.grad * lr
                model.zero_grad()
        print(epoch, loss.item())


fit()
torch.save(model.state_dict(), "weights.pt")
