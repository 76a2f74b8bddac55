"""Softmax by hand without taking off the maximum: in one of four layers the scores overflow."""
# op: aten.exp
# phase: forward
# module: encoder.layers.2.attn
# conditions: model deep-path

import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, dim, scale):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.scale = scale

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) * self.scale
        e = torch.exp(scores)  # <-- origin
        weights = e / e.sum(-1, keepdim=True)
        return self.out(weights @ v)


class Layer(nn.Module):
    def __init__(self, dim, scale):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = SelfAttention(dim, scale)
        self.norm2 = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.ff(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        scales = [1 / math.sqrt(dim)] * depth
        scales[2] = 2.0 * dim  # somebody's experiment
        self.layers = nn.ModuleList(Layer(dim, s) for s in scales)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Model(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.embed = nn.Embedding(40, dim)
        self.encoder = Encoder(dim, 4)
        self.head = nn.Linear(dim, 40)

    def forward(self, idx):
        return self.head(self.encoder(self.embed(idx)))


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(10):
        idx = torch.randint(0, 40, (4, 12))
        loss = nn.functional.cross_entropy(model(idx).flatten(0, 1), idx.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
