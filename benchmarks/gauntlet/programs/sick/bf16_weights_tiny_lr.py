"""Fine-tuning with the weights themselves in bfloat16: updates of 1e-6 are rounded away."""
# expects: precision-underflow
# report: https://github.com/workofart/ml-by-hand/pull/85

import torch
import torch.nn as nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


model = nn.Sequential(Block(32), Block(32), nn.Linear(32, 6)).to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
x = torch.randn(400, 32, dtype=torch.bfloat16)
y = x[:, :6].float().argmax(1)
for epoch in range(8):
    for idx in torch.randperm(400).split(20):
        loss = nn.functional.cross_entropy(model(x[idx]).float(), y[idx])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
