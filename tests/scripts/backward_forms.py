"""All the ways to get gradients: several roots, inputs=, a vector, a closure for Adam, autograd.grad into .grad."""
# run: status=healthy steps=30
# when: thorough
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))
params = list(model.parameters())
opt = torch.optim.Adam(params, lr=5e-3)
x = torch.randn(120, 6)
y = torch.stack([x[:, 0] * x[:, 1], x[:, 2]], 1)

for step in range(30):
    i = torch.randint(120, (40,))
    opt.zero_grad()
    form = step % 5
    if form == 0:
        out = model(x[i])
        l0, l1 = ((out - y[i]) ** 2).mean(0)
        torch.autograd.backward([l0, l1])
    elif form == 1:
        loss = ((model(x[i]) - y[i]) ** 2).sum(1).mean()
        loss.backward(inputs=params[:2], retain_graph=True)
        loss.backward(inputs=params[2:])
    elif form == 2:
        error = ((model(x[i]) - y[i]) ** 2).sum(1)
        error.backward(torch.full((40,), 1 / 40))
    elif form == 3:
        loss = ((model(x[i]) - y[i]) ** 2).sum(1).mean()
        for p, g in zip(params, torch.autograd.grad(loss, params)):
            p.grad = g
    else:
        def closure():
            opt.zero_grad()
            loss = ((model(x[i]) - y[i]) ** 2).sum(1).mean()
            loss.backward()
            return loss
        print(step, opt.step(closure).item())
        continue
    opt.step()
torch.save(model.state_dict(), "weights.pt")
