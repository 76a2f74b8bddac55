"""Bilevel: architecture weights learn on validation batches, the others on training batches. One model, two optimizers."""
# run: status=healthy steps=30
# when: thorough
import torch
from torch import nn

torch.manual_seed(0)


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Linear(8, 24), nn.Linear(24, 3)
        self.ops = nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.Sequential(nn.Linear(24, 24), nn.ReLU()), nn.Identity()])
        self.alpha = nn.Parameter(1e-3 * torch.randn(4))

    def forward(self, x):
        h = self.inp(x)
        return self.out(sum(w * op(h) for w, op in zip(self.alpha.softmax(0), self.ops)))


model = Mixed()
w_opt = torch.optim.SGD([p for n, p in model.named_parameters() if n != "alpha"], lr=0.1, momentum=0.9)
a_opt = torch.optim.Adam([model.alpha], lr=3e-2, betas=(0.5, 0.999))
x = torch.randn(300, 8)
y = (x @ torch.randn(8, 3)).argmax(1)
for step in range(30):
    val, train = torch.randint(150, 300, (50,)), torch.randint(0, 150, (50,))
    a_opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x[val]), y[val])
    loss.backward()
    a_opt.step()

    w_opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x[train]), y[train])
    loss.backward()
    w_opt.step()
    if step % 6 == 5:
        print(step + 1, loss.item(), model.alpha.softmax(0).tolist())
torch.save(model.state_dict(), "weights.pt")
