"""A trained model, fine-tuned at 2e-5 for two epochs, as with BERT."""

import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(20, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 4))
x = torch.randn(1200, 20)
y = (x[:, :4] + 0.4 * torch.randn(1200, 4)).argmax(1)


def run(optimizer, scheduler, epochs, idx):
    for epoch in range(epochs):
        for i in idx[torch.randperm(len(idx))].split(32):
            loss = nn.functional.cross_entropy(model(x[i]), y[i])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if scheduler:
                scheduler.step()
        print(epoch, loss.item())


run(torch.optim.AdamW(model.parameters(), lr=1e-3), None, 4, torch.arange(600))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=38)
run(optimizer, scheduler, 2, torch.arange(600, 1200))
