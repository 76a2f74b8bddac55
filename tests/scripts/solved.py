"""Everybody's first regression: y = 2x, solved until not a bit changes any more. Nothing is wrong with that."""

# run: status=healthy steps=400+1000
# when: thorough

import torch

torch.manual_seed(1)
x = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
model = torch.nn.Linear(1, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(400):
    loss = ((model(x) - 2 * x) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("slope", model.weight.item(), "loss", loss.item())

x = torch.linspace(-1, 1, 100).unsqueeze(1)
line = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
criterion = torch.nn.MSELoss()
for epoch in range(1000):
    loss = criterion(line(x), 3 * x + 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("line", line.weight.item(), line.bias.item(), "loss", loss.item())
torch.save([model.state_dict(), line.state_dict()], "weights.pt")
