"""OneCycleLR with a peak lr of 0.8 for plain SGD on a BatchNorm MLP: looks far too high, ramps from 0.03, and ends near zero, but converges well."""
# expects:
# source: https://arxiv.org/abs/1708.07120
import torch
from torch import nn

torch.manual_seed(3)
n, d, k = 6000, 20, 5
W1, W2 = torch.randn(d, 30), torch.randn(30, k)
X = torch.randn(n, d)
Y = (torch.tanh(X @ W1 / 8) @ W2).argmax(1)
Xtr, Ytr, Xva, Yva = X[:5000], Y[:5000], X[5000:], Y[5000:]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(d, 64, bias=False), nn.BatchNorm1d(64)
        self.fc2, self.bn2 = nn.Linear(64, 64, bias=False), nn.BatchNorm1d(64)
        self.out = nn.Linear(64, k)

    def forward(self, x):
        x = torch.relu(self.bn1(self.fc1(x)))
        x = torch.relu(self.bn2(self.fc2(x)))
        return self.out(x)


model = Net()
epochs, bs = 8, 100
steps = 5000 // bs
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.8, epochs=epochs, steps_per_epoch=steps)
for epoch in range(epochs):
    model.train()
    perm = torch.randperm(5000)
    tl = 0
    for i in range(steps):
        b = perm[i * bs:(i + 1) * bs]
        loss = nn.functional.cross_entropy(model(Xtr[b]), Ytr[b])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        tl += loss.item() / steps
    model.eval()
    with torch.inference_mode():
        o = model(Xva)
    print(f"{epoch}: lr {scheduler.get_last_lr()[0]:.4f} train {tl:.4f} val {nn.functional.cross_entropy(o, Yva):.4f} acc {(o.argmax(1) == Yva).float().mean():.3f}")
