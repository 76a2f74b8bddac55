"""Physics-informed net for u''+4u=0: fixed collocation points, Adam first and then LBFGS with a closure (many backwards per step)."""
# expects:
import torch
import torch.nn as nn

torch.manual_seed(123)
torch.set_default_dtype(torch.float64)
w = 2.0
t = torch.linspace(0, 3, 80).unsqueeze(1).requires_grad_(True)
t0 = torch.zeros(1, 1, requires_grad=True)
net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))


def d(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def pinn_loss():
    u = net(t)
    ut = d(u, t)
    res = d(ut, t) + w ** 2 * u
    u0 = net(t0)
    ic = (u0 - 1.0).pow(2).squeeze() + d(u0, t0).pow(2).squeeze()
    return 0.05 * res.pow(2).mean() + ic


def err():
    with torch.no_grad():
        return (net(t) - torch.cos(w * t)).abs().max().item()


adam = torch.optim.Adam(net.parameters(), lr=5e-3)
for i in range(300):
    adam.zero_grad()
    loss = pinn_loss()
    loss.backward()
    adam.step()
    if i % 100 == 99:
        print(f"adam {i + 1} loss {loss.item():.3e} max err {err():.4f}")

lbfgs = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=20, history_size=30, line_search_fn="strong_wolfe")


def closure():
    lbfgs.zero_grad()
    l = pinn_loss()
    l.backward()
    return l


for i in range(8):
    loss = lbfgs.step(closure)
    if i % 4 == 3:
        print(f"lbfgs {i + 1} loss {loss.item():.3e} max err {err():.5f}")
