"""Frozen mid-training with zero_grad(set_to_none=False): momentum and weight decay keep moving the weights."""
# expects: ineffective-freeze
# report: https://discuss.pytorch.org/t/why-there-is-still-a-small-change-in-frozen-layer-parameters/153740

import torch
import torch.nn as nn

torch.manual_seed(0)
fc1, fc2 = nn.Linear(16, 32), nn.Linear(32, 4)
model = nn.Sequential(fc1, nn.ReLU(), fc2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-2)
x = torch.randn(640, 16)
y = x[:, :4].argmax(1)
for epoch in range(8):
    if epoch == 2:
        before = fc1.weight.detach().clone()
        for p in fc1.parameters():
            p.requires_grad_(False)
    for i in torch.randperm(640).split(32):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
print("fc1 moved by", (fc1.weight - before).abs().max().item())
