"""A logging helper that 'cleans up' with model.zero_grad() is called before the optimizer steps."""
# expects: lost-gradient

import torch
import torch.nn as nn


class GradientLogger:
    def __init__(self, model):
        self.model = model
        self.norms = []

    def log(self):
        total = sum(p.grad.norm() ** 2 for p in self.model.parameters()) ** 0.5
        self.norms.append(float(total))
        self.model.zero_grad()  # so that the numbers of the next step are fresh


torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(1, 8, 5, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
logger = GradientLogger(model)
t = torch.linspace(0, 6.28, 32)
for step in range(120):
    kind = torch.randint(0, 3, (24,))
    x = torch.sin(t * (kind[:, None] + 1)) + 0.3 * torch.randn(24, 32)
    loss = nn.functional.cross_entropy(model(x[:, None]), kind)
    loss.backward()
    logger.log()
    optimizer.step()
print(logger.norms[-1])
