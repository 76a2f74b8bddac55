"""The module is only a recipe: its parameters live in a dict that the optimizer owns."""
# run: status=healthy steps=30
# when: thorough
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
params = {k: v.detach().clone().requires_grad_(True) for k, v in net.named_parameters()}
frozen = {k: v.detach().clone() for k, v in net.named_parameters()}
opt = torch.optim.Adam(params.values(), lr=1e-2)

x = torch.randn(200, 5)
y = x.prod(dim=1, keepdim=True)
for t in range(30):
    loss = nn.functional.l1_loss(functional_call(net, params, (x,)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if t % 6 == 0:
        print(t, loss.item())

assert all(torch.equal(frozen[k], v) for k, v in net.named_parameters())
torch.save(params, "weights.pt")
