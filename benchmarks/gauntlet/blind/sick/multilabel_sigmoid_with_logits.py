"""Multi-label tagger returns sigmoid probabilities and trains with BCEWithLogitsLoss: sigmoid twice, negatives can only reach 0.5, loss stuck near 0.6."""
# expects: double-softmax, loss-input-mismatch
# report: https://karpathy.github.io/2019/04/25/recipe/
import torch
import torch.nn as nn

torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self, d=20, tags=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.tags = nn.Linear(64, tags)

    def forward(self, x):
        return torch.sigmoid(self.tags(self.body(x)))


x = torch.randn(3000, 20)
t = (torch.tanh(x @ torch.randn(20, 12) / 2) @ torch.randn(12, 6) > 2.0).float()
print("positives per tag", t.mean(0))
model = Tagger()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.BCEWithLogitsLoss()
for epoch in range(8):
    for b in torch.randperm(2500).split(50):
        p = model(x[b])
        loss = loss_fn(p, t[b])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        pv = model(x[2500:])
        exact = ((pv > 0.5).float() == t[2500:]).float().mean()
    print(f"epoch {epoch} loss {loss.item():.4f} tag acc {exact:.3f}")
