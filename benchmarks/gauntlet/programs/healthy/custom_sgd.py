"""No torch.optim: parameters are updated by hand under no_grad, gradients zeroed by hand."""

import torch

torch.manual_seed(0)
w1 = (torch.randn(10, 32) * (2 / 10) ** 0.5).requires_grad_()
b1 = torch.zeros(32, requires_grad=True)
w2 = (torch.randn(32, 1) * (2 / 32) ** 0.5).requires_grad_()
b2 = torch.zeros(1, requires_grad=True)
params = [w1, b1, w2, b2]
x = torch.randn(500, 10)
y = torch.sin(x[:, :1])
for step in range(300):
    i = torch.randint(0, 500, (32,))
    h = (x[i] @ w1 + b1).clamp(min=0)
    loss = ((h @ w2 + b2 - y[i]) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        for p in params:
            p -= 0.03 * p.grad
            p.grad.zero_()
    if step % 60 == 0:
        print(step, loss.item())
