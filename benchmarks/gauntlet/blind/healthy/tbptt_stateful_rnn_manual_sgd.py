"""Truncated BPTT with a hidden state carried across chunks (detached each time), consecutive unshuffled chunks, and hand-written SGD with momentum instead of torch.optim."""
# expects:
# source: https://discuss.pytorch.org/t/implementing-truncated-backpropagation-through-time/15500
import math
import torch
import torch.nn as nn

torch.manual_seed(0)
B, CH = 16, 20
phase = torch.rand(B, 1) * 6.28
freqs = torch.rand(B, 1) * 0.2 + 0.2


def chunk(k):
    t = torch.arange(k * CH, k * CH + CH + 1).float()
    s = torch.sin(freqs * t + phase) + 0.3 * torch.sin(3 * freqs * t) + 0.02 * torch.randn(B, CH + 1)
    return s[:, :-1, None], s[:, 1:, None]


rnn, head = nn.GRU(1, 32, batch_first=True), nn.Linear(32, 1)
params = list(rnn.parameters()) + list(head.parameters())
velocity = [torch.zeros_like(p) for p in params]
lr, mom, clip = 0.05, 0.9, 1.0
h = None
avg = None
for k in range(400):
    x, y = chunk(k)
    if h is not None:
        h = h.detach()
    out, h = rnn(x, h)
    loss = (head(out) - y).pow(2).mean()
    for p in params:
        p.grad = None
    loss.backward()
    with torch.no_grad():
        norm = math.sqrt(sum(p.grad.pow(2).sum().item() for p in params))
        c = min(1.0, clip / (norm + 1e-6))
        for p, v in zip(params, velocity):
            v.mul_(mom).add_(p.grad, alpha=c)
            p -= lr * v
    avg = loss.item() if avg is None else 0.95 * avg + 0.05 * loss.item()
    if k % 80 == 79:
        print(f"chunk {k + 1} loss {loss.item():.5f} smoothed {avg:.5f} (signal variance 0.55)")
