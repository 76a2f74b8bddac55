"""Log prices are taken of a series in which a halted day has price 0, so a few windows hold -inf and the GRU's loss turns NaN."""
# expects: nonfinite-input, nonfinite-loss
# report: folklore
import argparse
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader


class PriceWindows(Dataset):
    """log price windows -> next step's log price change"""

    def __init__(self, prices, length=24):
        self.logp = np.log(prices).astype(np.float32)
        self.length = length

    def __len__(self):
        return len(self.logp) - self.length - 1

    def __getitem__(self, i):
        w = self.logp[i:i + self.length]
        base = self.logp[i]
        return {"window": torch.from_numpy(w - base).unsqueeze(-1),
                "target": torch.tensor([self.logp[i + self.length] - base])}


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.gru(x)
        return self.head(out[:, -1])


def make_prices(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    logp = 4 + 0.4 * np.sin(t / 9.0) + 0.2 * np.sin(t / 31.0) + rng.normal(0, 0.02, n)
    p = np.exp(logp)
    p[2310] = 0.0  # exchange halt, feed reports zero
    return p


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--bs", type=int, default=32)
    args = ap.parse_args()
    torch.manual_seed(0)
    np.seterr(divide="ignore", invalid="ignore")
    dl = DataLoader(PriceWindows(make_prices(4000, 1)), batch_size=args.bs, shuffle=True)
    net = Forecaster()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    for ep in range(args.epochs):
        losses = []
        for batch in dl:
            pred = net(batch["window"])
            loss = nn.functional.mse_loss(pred, batch["target"])
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
        print(f"epoch {ep}: mse {np.mean(losses):.5f} last {losses[-1]:.5f}")


if __name__ == "__main__":
    main()
