"""A buffer made by torch.empty is filled only up to the batch's length; the rest is read as it is."""
# op: aten.empty|aten.new_empty
# phase: forward
# module: pad
# conditions: model uninitialised deterministic

import torch
from torch import nn

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)  # fills fresh memory with NaN, so that such reads show


class PadTo(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.length = length

    def forward(self, sequences):
        out = torch.empty(len(sequences), self.length, sequences[0].shape[-1])  # <-- origin
        for i, s in enumerate(sequences):
            out[i, : len(s)] = s
        return out


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 6)
        self.pad = PadTo(5)
        self.head = nn.Linear(6, 2)

    def forward(self, sequences):
        return self.head(self.pad([self.inner(s) for s in sequences]).mean(1))


net = Net()
opt = torch.optim.Adam(net.parameters())
for step in range(6):
    lengths = [5, 5, 5] if step < 3 else [5, 4, 5]
    sequences = [torch.randn(n, 3) for n in lengths]
    loss = nn.functional.cross_entropy(net(sequences), torch.tensor([0, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
