"""Activation checkpointing, both kinds, and two losses with retain_graph."""
# run: status=healthy steps=25
# when: thorough
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(10, 32)
        self.a = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32))
        self.b = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32))
        self.head, self.aux = nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, x):
        x = self.stem(x)
        x = x + checkpoint(self.a, x, use_reentrant=True)
        x = x + checkpoint(self.b, x, use_reentrant=False)
        return self.head(x), self.aux(x)


model = Net()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
x = torch.randn(200, 10)
y = x[:, :4].argmax(1)
for step in range(25):
    i = torch.randint(200, (40,))
    logits, aux = model(x[i])
    loss = nn.functional.cross_entropy(logits, y[i])
    aux_loss = 0.1 * nn.functional.mse_loss(aux, x[i].mean(1, keepdim=True))
    opt.zero_grad()
    loss.backward(retain_graph=True)
    aux_loss.backward()
    opt.step()
    if step % 5 == 4:
        print(step + 1, loss.item(), aux_loss.item())
torch.save(model.state_dict(), "weights.pt")
