"""Code of the loop between two models: codes are scaled by their largest entry, which is 0 for one of them."""
# op: aten.div
# phase: forward|loss
# module: -
# conditions: several-roots loop

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(8, 6), nn.ReLU())
decoder = nn.Sequential(nn.Linear(6, 8), nn.Sigmoid())
optimizer = torch.optim.Adam(list(encoder.parameters()) + list(decoder.parameters()), lr=1e-3)


def train_step(x):
    code = encoder(x)
    code = code / code.max(dim=1, keepdim=True).values  # <-- origin
    reconstruction = decoder(code)
    loss = nn.functional.binary_cross_entropy(reconstruction.nan_to_num(0.5), x)
    loss = loss + 1e-3 * code.abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in range(6):
    x = torch.rand(8, 8)
    if step == 3:
        with torch.no_grad():
            encoder[0].bias.fill_(-10)
    print(step, train_step(x))
