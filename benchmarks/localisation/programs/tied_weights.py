"""A language model with tied embeddings; the log of softmax, not log_softmax, underflows to log(0)."""
# op: aten.log
# phase: loss
# module: -
# conditions: tying loop

import torch
from torch import nn


class TiedLM(nn.Module):
    def __init__(self, vocabulary=40, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.lm_head = nn.Linear(dim, vocabulary, bias=False)
        self.lm_head.weight = self.embed.weight

    def forward(self, idx):
        h, _ = self.mix(self.embed(idx))
        return self.lm_head(h * 8)


torch.manual_seed(0)
model = TiedLM()
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(8):
    idx = torch.randint(0, 40, (4, 9))
    inputs, targets = idx[:, :-1], idx[:, 1:]
    probabilities = model(inputs).softmax(-1)
    picked = probabilities.gather(-1, targets.unsqueeze(-1))
    loss = picked.log().neg().mean()  # <-- origin
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
