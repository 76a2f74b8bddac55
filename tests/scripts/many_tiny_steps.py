"""Thousands of steps of a few hundred microseconds each, with a validation now and then."""
# run: status=healthy steps=2000
# when: thorough
import torch

torch.manual_seed(0)
x = torch.randn(1000, 5)
w = torch.randn(5, 1)
y = x @ w + 0.3 * torch.randn(1000, 1)
model = torch.nn.Linear(5, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.02)
criterion = torch.nn.MSELoss()
for step in range(2000):
    i = torch.randint(0, 800, (10,))
    loss = criterion(model(x[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 500 == 499:
        model.eval()
        with torch.no_grad():
            print(step + 1, criterion(model(x[800:]), y[800:]).item())
        model.train()
torch.save(model.state_dict(), "weights.pt")
