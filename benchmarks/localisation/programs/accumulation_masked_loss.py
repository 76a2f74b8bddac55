"""Gradient accumulation: the loss of one micro-batch is the mean over no tokens at all."""
# op: aten.div
# phase: loss
# module: -
# conditions: accumulation loop

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
ACCUMULATE = 4


class TinyLM(nn.Module):
    def __init__(self, vocabulary=30, dim=16):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim))
        self.lm_head = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, idx):
        h = self.wte(idx)
        return self.lm_head(h + self.mlp(h))


def get_micro_batch(number):
    tokens = torch.randint(0, 30, (4, 9))
    loss_mask = torch.ones(4, 8)
    loss_mask[:, :3] = 0  # the prompt is not learnt
    if number == 10:  # third update, third micro-batch: prompts that fill the window
        loss_mask[:] = 0
    return tokens[:, :-1], tokens[:, 1:], loss_mask


model = TinyLM()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
number = 0
for step in range(5):
    optimizer.zero_grad(set_to_none=True)
    running = 0.0
    for micro in range(ACCUMULATE):
        idx, targets, loss_mask = get_micro_batch(number)
        number += 1
        logits = model(idx)
        per_token = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        loss = (per_token * loss_mask.flatten()).sum() / loss_mask.sum()  # <-- origin
        (loss / ACCUMULATE).backward()
        running += loss.item() / ACCUMULATE
    optimizer.step()
    print(f"step {step}: {running:.3f}")
