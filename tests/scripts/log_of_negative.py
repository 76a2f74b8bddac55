"""log() of a number that is negative now and then: the loss is NaN, its gradient is not, and nobody notices."""
# run: status=critical steps=60
# when: thorough
# findings: nonfinite-loss
import torch
from torch import nn

torch.manual_seed(0)
x = torch.rand(128, 4)
y = x.sum(1) - 1.6  # counts, less the background

model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
with torch.no_grad():
    model[2].bias.fill_(1.0)
opt = torch.optim.SGD(model.parameters(), lr=0.2)
for step in range(60):
    i = torch.randint(128, (16,))
    rate = model(x[i]).squeeze(1)
    loss = (rate - y[i] * torch.log(rate)).mean()  # Poisson without exp
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 6 == 0:
        print(step, loss.item())
torch.save(model.state_dict(), "weights.pt")
