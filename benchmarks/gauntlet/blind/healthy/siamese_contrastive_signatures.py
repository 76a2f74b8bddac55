"""Siamese network with the classic contrastive loss and balanced pairs from a custom Dataset; one network applied twice per step."""
# expects:
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

random.seed(0)
torch.manual_seed(0)
WRITERS = [torch.randn(2, 5) for _ in range(40)]


def signature(w):
    t = torch.linspace(0, 1, 32)
    c = WRITERS[w] * (1 + 0.08 * torch.randn(2, 5))
    k = torch.arange(1, 6).float()[:, None]
    return torch.stack([(c[0][:, None] * torch.sin(3.14 * k * t)).sum(0), (c[1][:, None] * torch.cos(3.14 * k * t)).sum(0)]) / 2 + 0.05 * torch.randn(2, 32)


class Pairs(Dataset):
    def __init__(self, writers, n):
        self.writers, self.n = writers, n
        self.bank = {w: [signature(w) for _ in range(15)] for w in writers}

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        a = random.choice(self.writers)
        same = random.random() < 0.5
        b = a if same else random.choice([w for w in self.writers if w != a])
        return random.choice(self.bank[a]), random.choice(self.bank[b]), torch.tensor(float(not same))


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(nn.Conv1d(2, 16, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2))
        self.fc = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward_once(self, x):
        return self.fc(self.cnn(x).flatten(1))

    def forward(self, a, b):
        return self.forward_once(a), self.forward_once(b)


def contrastive(o1, o2, label, margin=1.0):
    d = F.pairwise_distance(o1, o2)
    return ((1 - label) * d.pow(2) + label * F.relu(margin - d).pow(2)).mean()


net = SiameseNetwork()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
train = DataLoader(Pairs(list(range(30)), 2000), batch_size=50, shuffle=True)
test = DataLoader(Pairs(list(range(30, 40)), 600), batch_size=200)
for ep in range(5):
    net.train()
    for a, b, l in train:
        opt.zero_grad()
        loss = contrastive(*net(a, b), l)
        loss.backward()
        opt.step()
    net.eval()
    c = 0
    with torch.no_grad():
        for a, b, l in test:
            o1, o2 = net(a, b)
            c += ((F.pairwise_distance(o1, o2) > 0.5).float() == l).sum().item()
    print(f"Epoch {ep} loss {loss.item():.4f} verification acc on unseen writers {c / 600:.3f}")
