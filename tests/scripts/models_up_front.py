"""An ensemble: all models and optimizers are made first, then trained one after the other."""
# run: status=healthy steps=25+30+35
# when: thorough
import torch
from torch import nn

torch.manual_seed(0)
models = [
    nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1)),
    nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 1)),
    nn.Sequential(nn.Linear(10, 24), nn.GELU(), nn.Linear(24, 1)),
]
optimizers = [torch.optim.Adam(m.parameters(), lr=1e-2) for m in models]
x = torch.randn(200, 10)
y = x[:, :2].prod(1, keepdim=True) + x[:, 2:3]

for k, (model, optimizer) in enumerate(zip(models, optimizers)):
    for step in range(25 + 5 * k):
        i = torch.randint(200, (40,))
        loss = nn.functional.mse_loss(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"model {k}: {loss.item():.6f}")

with torch.no_grad():
    mean = torch.stack([m(x) for m in models]).mean(0)
    print("ensemble:", nn.functional.mse_loss(mean, y).item())
torch.save(nn.ModuleList(models).state_dict(), "weights.pt")
