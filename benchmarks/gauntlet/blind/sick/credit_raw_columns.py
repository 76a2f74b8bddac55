"""Raw credit columns (income in cents, unix timestamps next to ratios) go into an MLP unscaled: the big columns drown the others, logits are huge and accuracy stays near the base rate."""
# expects: unnormalized-input, loss-explosion
# report: https://stats.stackexchange.com/questions/352036/what-should-i-do-when-my-neural-network-doesnt-learn
import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(5)
torch.manual_seed(5)
n = 4000
income_cents = rng.lognormal(15, 0.4, n)
opened = rng.uniform(1.2e9, 1.6e9, n)
ratio = rng.uniform(0, 1, n)
late = rng.poisson(1.0, n)
age = rng.uniform(18, 75, n)
z = 3.5 * (ratio - 0.5) + 0.6 * (late - 1) - 1.0 * (np.log(income_cents) - 15) - 0.02 * (age - 45) + 0.3 * rng.normal(size=n)
y = torch.tensor(z > 0, dtype=torch.float32)
X = torch.tensor(np.stack([income_cents, opened, ratio, late, age], 1), dtype=torch.float32)

clf = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(clf.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
for epoch in range(8):
    perm = torch.randperm(3500)
    total = 0
    for s in range(0, 3500, 50):
        i = perm[s:s + 50]
        loss = criterion(clf(X[i]).squeeze(-1), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    with torch.no_grad():
        acc = ((clf(X[3500:]).squeeze(-1) > 0).float() == y[3500:]).float().mean()
    print(f"epoch {epoch} loss {total/70:.4g} acc {acc:.3f}")
