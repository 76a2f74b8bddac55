"""Linear probes on detached features are trained beside the main loss, by their own optimizer."""

import torch
import torch.nn as nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(16, 64), nn.ReLU())
head, probe = nn.Linear(64, 4), nn.Linear(64, 2)
optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=2e-3)
probe_optimizer = torch.optim.Adam(probe.parameters(), lr=2e-3)
for step in range(250):
    x = torch.randn(32, 16)
    h = body(x)
    loss = nn.functional.cross_entropy(head(h), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    probe_loss = nn.functional.cross_entropy(probe(h.detach()), (x[:, 5] > 0).long())
    probe_optimizer.zero_grad()
    probe_loss.backward()
    probe_optimizer.step()
    if step % 50 == 0:
        print(step, loss.item(), probe_loss.item())
