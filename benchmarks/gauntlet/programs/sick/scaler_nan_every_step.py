"""A penalty with a root at zero: every backward is NaN, the scaler skips every step without a word."""
# expects: amp-scale-collapse, nonfinite-gradient

import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--penalty", type=float, default=0.1)
args = parser.parse_args()

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
head = nn.Linear(8, 3)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.05)
scaler = torch.amp.GradScaler("cpu")
data = torch.randn(300, 16)
target = data[:, :3].argmax(1)
for step in range(args.steps):
    idx = torch.randint(0, 300, (24,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = encoder(data[idx])
        logits = head(z)
    z = z.float()
    distance = (z[:, None] - z[None]).square().sum(-1).sqrt()  # zero on the diagonal
    loss = nn.functional.cross_entropy(logits.float(), target[idx]) + args.penalty * (-distance).exp().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print("scale", scaler.get_scale())
