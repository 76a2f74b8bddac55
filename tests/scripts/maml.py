"""MAML: inner steps by autograd.grad with create_graph, the outer one by Adam."""
# run: status=healthy steps=30
# when: thorough
import torch
import torch.nn.functional as F

torch.manual_seed(17)


def net(p, x):
    h = torch.tanh(F.linear(x, p[0], p[1]))
    return F.linear(torch.tanh(F.linear(h, p[2], p[3])), p[4], p[5])


sizes = [(40, 1), (40,), (40, 40), (40,), (1, 40), (1,)]
params = [torch.nn.Parameter(torch.randn(s) / (s[1] ** 0.5) if len(s) == 2 else torch.zeros(s)) for s in sizes]
outer = torch.optim.Adam(params, lr=3e-3)


def task():
    amp, phase = torch.rand(1) * 4 + 1, torch.rand(1) * 3.14

    def draw(n=10):
        x = torch.rand(n, 1) * 10 - 5
        return x, amp * torch.sin(x + phase)

    return draw


for it in range(30):
    outer.zero_grad()
    total = 0.0
    for _ in range(4):
        draw = task()
        x, y = draw()
        grads = torch.autograd.grad(F.mse_loss(net(params, x), y), params, create_graph=True)
        fast = [p - 0.02 * g for p, g in zip(params, grads)]
        x, y = draw()
        loss = F.mse_loss(net(fast, x), y) / 4
        loss.backward()
        total += loss.item()
    outer.step()
    if it % 6 == 5:
        print(it + 1, total)
torch.save(params, "weights.pt")
