"""Head first, then the last block, then everything; a new optimizer for each phase."""

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.ModuleDict({
    "low": nn.Sequential(nn.Linear(20, 48), nn.ReLU()),
    "high": nn.Sequential(nn.Linear(48, 48), nn.ReLU()),
    "head": nn.Linear(48, 4),
})
x = torch.randn(800, 20)
y = (x[:, :4] + x[:, 4:8] * x[:, 8:12]).argmax(1)
model.requires_grad_(False)
for phase, names in enumerate([["head"], ["head", "high"], ["head", "high", "low"]]):
    for name in names:
        model[name].requires_grad_(True)
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trainable, lr=3e-3 / 2**phase)
    for epoch in range(3):
        for i in torch.randperm(800).split(40):
            logits = model["head"](model["high"](model["low"](x[i])))
            loss = nn.functional.cross_entropy(logits, y[i])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(phase, loss.item())
