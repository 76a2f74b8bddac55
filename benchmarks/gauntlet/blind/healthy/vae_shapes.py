"""Textbook VAE (sum-reduced BCE + KLD, so losses in the hundreds) on drawn shapes; big loss and never-zero floor are normal."""
# expects:
# source: https://github.com/pytorch/examples/blob/main/vae/main.py
import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)


def shapes(n):
    yy, xx = torch.meshgrid(torch.arange(16.), torch.arange(16.), indexing="ij")
    cx, cy = torch.rand(2, n, 1, 1) * 6 + 5
    r = torch.rand(n, 1, 1) * 2.5 + 2
    kind = torch.randint(0, 2, (n, 1, 1)).bool()
    circ = ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt() < r
    sq = ((xx - cx).abs() < r) & ((yy - cy).abs() < r)
    return torch.where(kind, circ, sq).float().view(n, 256)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(256, 200)
        self.fc21 = nn.Linear(200, 8)
        self.fc22 = nn.Linear(200, 8)
        self.fc3 = nn.Linear(8, 200)
        self.fc4 = nn.Linear(200, 256)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x, reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


train_x, test_x = shapes(5000), shapes(500)
train_loader = DataLoader(TensorDataset(train_x), batch_size=100, shuffle=True)
model = VAE()
optimizer = optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(1, 13):
    model.train()
    train_loss = 0
    for (data,) in train_loader:
        optimizer.zero_grad()
        recon, mu, logvar = model(data)
        loss = loss_function(recon, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        recon, mu, logvar = model(test_x)
        t = loss_function(recon, test_x, mu, logvar).item() / 500
        acc = ((recon > 0.5) == (test_x > 0.5)).float().mean().item()
    print(f"====> Epoch: {epoch} Average loss: {train_loss / 5000:.3f}  test: {t:.3f}  pixel acc {acc:.4f}")
