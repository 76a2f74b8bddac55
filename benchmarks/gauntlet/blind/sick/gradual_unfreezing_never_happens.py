"""Gradual unfreezing should free the encoder at epoch 2, but the loop variable is compared with a string from the config: the encoder is in the optimizer, frozen at random init all along."""
# expects: frozen-parameter
# report: folklore
import torch
import torch.nn as nn

config = {"epochs": 6, "unfreeze_epoch": "2", "lr": 2e-3, "batch_size": 40}
torch.manual_seed(4)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(4, 16, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(16, 24, 5, padding=2), nn.ReLU())

    def forward(self, x):
        return self.conv(x).amax(-1)


class Promoter(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.classifier = nn.Linear(24, 4)

    def forward(self, x):
        return self.classifier(self.encoder(x))


motifs = torch.randint(4, (4, 7))


def dna(n, length=40):
    s = torch.randint(4, (n, length))
    y = torch.randint(4, (n,))
    for i in range(n):
        p = int(torch.randint(0, length - 7, (1,)))
        s[i, p:p + 7] = motifs[y[i]]
    return nn.functional.one_hot(s, 4).float().transpose(1, 2), y


x, y = dna(2400)
xv, yv = dna(400)
model = Promoter()
for p in model.encoder.parameters():
    p.requires_grad = False
opt = torch.optim.Adam(model.parameters(), lr=config["lr"])
for epoch in range(config["epochs"]):
    if epoch == config["unfreeze_epoch"]:
        for p in model.encoder.parameters():
            p.requires_grad = True
    for b in torch.randperm(len(x)).split(config["batch_size"]):
        loss = nn.functional.cross_entropy(model(x[b]), y[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        print(f"epoch {epoch} loss {loss.item():.4f} val acc {(model(xv).argmax(1) == yv).float().mean():.3f}")
