"""Standardised (half negative) sensor channels are reconstructed by a decoder that ends in ReLU: the negative half cannot be reached and the error stays near 0.5."""
# expects: output-range, dead-units
# report: https://github.com/pkmital/tensorflow_tutorials/issues/23
import numpy as np
import torch
import torch.nn as nn


def sensors(n, rng):
    t = rng.uniform(0, 2 * np.pi, (n, 1))
    a = rng.uniform(0.5, 1.5, (n, 1))
    ch = np.arange(24)[None]
    x = a * np.sin(t + ch * 0.5) + 0.05 * rng.normal(size=(n, 24))
    return x.astype(np.float32)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 4))
        self.decoder = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())

    def forward(self, x):
        return self.decoder(self.encoder(x))


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    x = sensors(4000, rng)
    mu, sd = x.mean(0), x.std(0)
    x = torch.from_numpy((x - mu) / sd)
    model = Autoencoder()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    for epoch in range(8):
        perm = torch.randperm(len(x))
        losses = []
        for i in range(0, len(x), 64):
            b = x[perm[i:i + 64]]
            loss = nn.functional.mse_loss(model(b), b)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        print(f"epoch {epoch} reconstruction mse {np.mean(losses):.4f}")


if __name__ == "__main__":
    main()
