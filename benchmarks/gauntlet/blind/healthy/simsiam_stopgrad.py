"""SimSiam: negative-cosine loss heading to -1, half of the graph detached on purpose, no negatives; a linear probe shows the features do not collapse."""
# expects:
# source: https://arxiv.org/abs/2011.10566
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
C, D = 6, 40
centers = torch.randn(C, D) * 1.5
y = torch.randint(0, C, (4000,))
X = centers[y] + 0.6 * torch.randn(4000, D)
raw_test_y = torch.randint(0, C, (800,))
Xt = centers[raw_test_y] + 0.6 * torch.randn(800, D)


def augment(x):
    mask = (torch.rand_like(x) > 0.25).float()
    return x * mask + 0.3 * torch.randn_like(x)


class SimSiam(nn.Module):
    def __init__(self, dim=64, pred=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(D, dim, bias=False), nn.BatchNorm1d(dim), nn.ReLU(),
                                     nn.Linear(dim, dim, bias=False), nn.BatchNorm1d(dim, affine=False))
        self.predictor = nn.Sequential(nn.Linear(dim, pred, bias=False), nn.BatchNorm1d(pred), nn.ReLU(), nn.Linear(pred, dim))

    def forward(self, x1, x2):
        z1, z2 = self.encoder(x1), self.encoder(x2)
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return p1, p2, z1.detach(), z2.detach()


model = SimSiam()
optimizer = torch.optim.SGD([{"params": model.encoder.parameters()}, {"params": model.predictor.parameters()}], lr=0.05, momentum=0.9, weight_decay=1e-4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 310)
cos = nn.CosineSimilarity(dim=1)
for epoch in range(10):
    model.train()
    for b in torch.randperm(4000).split(128)[:31]:
        p1, p2, z1, z2 = model(augment(X[b]), augment(X[b]))
        loss = -(cos(p1, z2).mean() + cos(p2, z1).mean()) * 0.5
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sched.step()
    z = F.normalize(z1, dim=1)
    print(f"epoch {epoch} loss {loss.item():.4f} feature std {z.std(0).mean():.4f} (ideal {64 ** -0.5:.4f})")

model.eval()
with torch.no_grad():
    ftr, fte = model.encoder(X), model.encoder(Xt)
probe = nn.Linear(64, C)
popt = torch.optim.Adam(probe.parameters(), lr=1e-2)
for step in range(150):
    b = torch.randint(0, 4000, (256,))
    l = F.cross_entropy(probe(ftr[b]), y[b])
    popt.zero_grad(); l.backward(); popt.step()
print("linear probe acc", (probe(fte).argmax(1) == raw_test_y).float().mean().item())
