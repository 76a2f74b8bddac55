"""JAX style: pure functions, torch.func.grad, no optimizer, never a backward()."""
# run: status=healthy steps=0
# when: thorough
import torch
from torch.func import grad_and_value, vmap


def init(gen, sizes):
    return [
        (torch.randn(m, n, generator=gen) * (2 / m) ** 0.5, torch.zeros(n))
        for m, n in zip(sizes[:-1], sizes[1:])
    ]


def predict(params, x):
    for w, b in params[:-1]:
        x = torch.relu(x @ w + b)
    w, b = params[-1]
    return (x @ w + b).squeeze(-1)


def loss(params, x, y):
    return ((predict(params, x) - y) ** 2).mean()


gen = torch.Generator().manual_seed(0)
x = torch.randn(128, 3, generator=gen)
y = x[:, 0] ** 2 - x[:, 1]
params = init(gen, [3, 32, 1])
for i in range(40):
    grads, value = grad_and_value(loss)(params, x, y)
    params = [(w - 0.05 * dw, b - 0.05 * db) for (w, b), (dw, db) in zip(params, grads)]
    if i % 10 == 0:
        print(i, f"{value:.7f}")

per_sample = vmap(grad_and_value(loss), in_dims=(None, 0, 0))(params, x[:4, None], y[:4, None])[0]
print("per-sample gradient norms", [round(g.norm().item(), 6) for g in per_sample[0][0]])
torch.save(params, "weights.pt")
