"""A hand-written running normalisation updates its variance buffer with x.var(0); the epoch's last batch has one sample, so the buffer becomes NaN for good."""
# expects: nonfinite-parameter, nonfinite-activation
# report: folklore
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class RunningNorm(nn.Module):
    def __init__(self, dim, momentum=0.05):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))

    def forward(self, x):
        out = (x - self.mean) / torch.sqrt(self.var + 1e-5)
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), self.momentum)
                self.var.lerp_(x.var(0), self.momentum)
        return out


class Net(nn.Module):
    def __init__(self, d_in, d_hidden, d_out):
        super().__init__()
        self.norm = RunningNorm(d_in)
        self.l1 = nn.Linear(d_in, d_hidden)
        self.l2 = nn.Linear(d_hidden, d_out)

    def forward(self, x):
        return self.l2(torch.tanh(self.l1(self.norm(x))))


def get_data(n):
    g = torch.Generator().manual_seed(8)
    x = torch.randn(n, 10, generator=g) * torch.linspace(0.5, 4, 10) + torch.linspace(-3, 3, 10)
    w = torch.randn(10, generator=g)
    y = torch.tanh((x - torch.linspace(-3, 3, 10)) @ w / 6) + 0.1 * torch.randn(n, generator=g)
    return x, y.unsqueeze(1)


def train(epochs=6):
    torch.manual_seed(1)
    x, y = get_data(3201)
    dl = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    net = Net(10, 64, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for e in range(epochs):
        net.train()
        s = 0.0
        for xb, yb in dl:
            loss = nn.functional.mse_loss(net(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            s += loss.item() * len(xb)
        print(f"epoch {e}  train mse {s/len(x):.4f}  norm var[0] {net.norm.var[0].item():.3f}")


if __name__ == "__main__":
    train()
