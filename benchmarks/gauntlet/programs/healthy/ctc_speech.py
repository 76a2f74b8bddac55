"""CTC with a small bidirectional GRU, log_softmax, input and target lengths."""

import torch
import torch.nn as nn

torch.manual_seed(0)


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(10, 24, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(48, 7)

    def forward(self, x):
        return self.fc(self.gru(x)[0]).log_softmax(-1)


codes = 2 * torch.randn(7, 10)
model = Recogniser()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
ctc = nn.CTCLoss(blank=0, zero_infinity=True)
for step in range(120):
    target = torch.randint(1, 7, (16, 4))
    x = codes[target.repeat_interleave(4, 1)] + 0.5 * torch.randn(16, 16, 10)
    logp = model(x).transpose(0, 1)
    loss = ctc(logp, target, torch.full((16,), 16), torch.full((16,), 4))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
