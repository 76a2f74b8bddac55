"""Lazy layers, weight norm, spectral norm, pruning: parameters that come late or change their identity."""
# run: status=healthy steps=45
# when: thorough
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

torch.manual_seed(0)
model = nn.Sequential(
    nn.LazyLinear(32),
    nn.ReLU(),
    parametrizations.weight_norm(nn.Linear(32, 32)),
    nn.ReLU(),
    parametrizations.spectral_norm(nn.Linear(32, 16)),
    nn.ReLU(),
    nn.Linear(16, 2),
)
x = torch.randn(160, 7)
y = (x[:, 0] > x[:, 1]).long()
model(x[:2])  # so that the lazy layer knows its size
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(45):
    if step == 30:
        prune.l1_unstructured(model[0], "weight", amount=0.3)
        opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    i = torch.randint(160, (40,))
    loss = nn.functional.cross_entropy(model(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 9 == 8:
        print(step + 1, loss.item())
prune.remove(model[0], "weight")
print("zeros:", int((model[0].weight == 0).sum()))
torch.save(model.state_dict(), "weights.pt")
