# No classes, no globals: functions that return functions.
# run: status=healthy steps=30
# when: thorough

import torch
import torch.nn.functional as F


def make_model(n_in, n_hidden, n_out, gen):
    W1 = torch.empty(n_hidden, n_in).normal_(0, n_in ** -0.5, generator=gen).requires_grad_()
    b1 = torch.zeros(n_hidden, requires_grad=True)
    W2 = torch.empty(n_out, n_hidden).normal_(0, n_hidden ** -0.5, generator=gen).requires_grad_()
    b2 = torch.zeros(n_out, requires_grad=True)

    def forward(x):
        return F.linear(torch.tanh(F.linear(x, W1, b1)), W2, b2)

    return forward, [W1, b1, W2, b2]


def make_step(forward, params, lr):
    opt = torch.optim.SGD(params, lr=lr, momentum=0.9)

    def step(x, y):
        opt.zero_grad()
        loss = F.cross_entropy(forward(x), y)
        loss.backward()
        opt.step()
        return float(loss)

    return step


gen = torch.Generator().manual_seed(3)
x = torch.randn(128, 6, generator=gen)
y = (x[:, 0] * x[:, 1] > 0).long()
forward, params = make_model(6, 24, 2, gen)
step = make_step(forward, params, lr=0.1)
for t in range(30):
    l = step(x, y)
    if t % 10 == 9:
        print(t + 1, l)
torch.save(params, "weights.pt")
