"""Linear regression on unscaled features: every step makes it worse, until the numbers end."""
# run: status=critical steps=60
# when: thorough
# findings: any
import numpy as np
import torch

rng = np.random.default_rng(0)
X = torch.tensor(rng.uniform(50, 250, size=(64, 3)), dtype=torch.float32)
t = torch.tensor(X.numpy() @ [3.0, 1.0, 0.5] + 100, dtype=torch.float32)

model = torch.nn.Linear(3, 1)
torch.nn.init.zeros_(model.weight)
torch.nn.init.zeros_(model.bias)
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for i in range(60):
    loss = ((model(X).squeeze() - t) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i < 5 or i % 10 == 0:
        print(i, loss.item())
print(model.weight.tolist())
