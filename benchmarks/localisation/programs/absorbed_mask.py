"""A causal -inf mask is harmless; the copy gate behind it takes the logarithm of 0."""
# op: aten.log
# phase: forward
# module: copy
# conditions: model mask absorbed

import torch
from torch import nn
import torch.nn.functional as F


class CausalAttention(nn.Module):
    def __init__(self, dim, length):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.register_buffer("bias", torch.triu(torch.full((length, length), float("-inf")), 1))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        att = (q @ k.mT) / q.shape[-1] ** 0.5 + self.bias
        return F.softmax(att, -1) @ v


class CopyGate(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gate = nn.Linear(dim, 1)

    def forward(self, h, logits):
        g = F.hardsigmoid(self.gate(h))
        return torch.log(g) + F.log_softmax(logits, -1)  # <-- origin


class Decoder(nn.Module):
    def __init__(self, dim=12, length=8):
        super().__init__()
        self.embed = nn.Embedding(25, dim)
        self.attn = CausalAttention(dim, length)
        self.copy = CopyGate(dim)
        self.lm = nn.Linear(dim, 25)

    def forward(self, idx):
        h = self.embed(idx)
        h = h + self.attn(h)
        return self.copy(h, self.lm(h))


torch.manual_seed(0)
decoder = Decoder()
opt = torch.optim.SGD(decoder.parameters(), lr=0.1)
for step in range(10):
    idx = torch.randint(0, 25, (4, 8))
    if step == 6:
        with torch.no_grad():
            decoder.copy.gate.bias.fill_(-6.0)  # as the paper initialises it
    target = torch.randint(0, 25, (4, 8))
    loss = F.nll_loss(decoder(idx).flatten(0, 1), target.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
