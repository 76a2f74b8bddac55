"""Final hidden state (layers*directions, batch, hidden) flattened with view(batch, -1): samples are mixed."""
# expects: batch-mixing
# report: https://medium.com/mcgill-artificial-intelligence-review/the-dangers-of-reshaping-and-other-fun-mistakes-ive-learnt-from-pytorch-b6a5bdc1c275

import torch
import torch.nn as nn


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.lstm = nn.LSTM(16, 24, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(48, 2)

    def forward(self, tokens):
        _, (hidden, _) = self.lstm(self.embed(tokens))
        return self.fc(hidden.view(tokens.shape[0], -1))


torch.manual_seed(0)
model = Sentiment()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(120):
    tokens = torch.randint(0, 40, (20, 9))
    labels = (tokens[:, 0] > 20).long()
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
