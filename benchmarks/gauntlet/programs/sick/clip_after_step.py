"""clip_grad_norm_ comes after optimizer.step()."""
# expects: ineffective-clipping

import torch
import torch.nn as nn


class CharLSTM(nn.Module):
    def __init__(self, vocab=30, hidden=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, 16)
        self.lstm = nn.LSTM(16, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        out, state = self.lstm(self.embed(x), state)
        return self.fc(out), state


torch.manual_seed(0)
text = torch.randint(0, 30, (40,)).repeat(60)
model = CharLSTM()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
state = None
for step in range(100):
    x = text[step * 20 : step * 20 + 20].unsqueeze(0).repeat(8, 1)
    y = text[step * 20 + 1 : step * 20 + 21].unsqueeze(0).repeat(8, 1)
    logits, state = model(x, state)
    state = tuple(s.detach() for s in state)
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    if step % 25 == 0:
        print(step, loss.item())
