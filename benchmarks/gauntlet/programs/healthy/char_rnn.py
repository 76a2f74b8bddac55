"""Character LSTM with carried state, truncated back-propagation and clipping."""

import torch
import torch.nn as nn

text = (
    "the quick brown fox jumps over the lazy dog. she sells sea shells by the sea shore. "
    "how much wood would a woodchuck chuck if a woodchuck could chuck wood? "
) * 30


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(vocab, 24)
        self.lstm = nn.LSTM(24, hidden, num_layers=2, dropout=0.2, batch_first=True)
        self.fc = nn.Linear(hidden, vocab)

    def forward(self, x, state):
        out, state = self.lstm(self.embed(x), state)
        return self.fc(out), state


torch.manual_seed(0)
chars = sorted(set(text))
ids = torch.tensor([chars.index(c) for c in text])
batch, length = 8, 25
rows = ids[: len(ids) // batch * batch].view(batch, -1)
model = CharRNN(len(chars))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(6):
    state = None
    for i in range(0, rows.shape[1] - length - 1, length):
        x, y = rows[:, i : i + length], rows[:, i + 1 : i + length + 1]
        if state is not None:
            state = tuple(s.detach() for s in state)
        logits, state = model(x, state)
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(epoch, loss.item())
