"""An LSTM language model as in pytorch/examples: init_hidden, repackage, clip, lr by hand on a plateau."""

import torch
import torch.nn as nn


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp=32, nhid=48):
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, 1)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid = nhid
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, x, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(output)).view(-1, self.decoder.out_features), hidden

    def init_hidden(self, bsz):
        return (torch.zeros(1, bsz, self.nhid), torch.zeros(1, bsz, self.nhid))


torch.manual_seed(0)
words = 40
chain = torch.softmax(3 * torch.randn(words, words), 1)
stream = [0]
for _ in range(3000):
    stream.append(int(torch.multinomial(chain[stream[-1]], 1)))
data = torch.tensor(stream)[:3000].view(10, -1).t().contiguous()
train_data, val_data = data[:240], data[240:]
model, criterion, lr, best = RNNModel(words), nn.CrossEntropyLoss(), 5.0, None
for epoch in range(4):
    model.train()
    hidden = model.init_hidden(10)
    for i in range(0, len(train_data) - 1, 12):
        n = min(12, len(train_data) - 1 - i)
        x, y = train_data[i : i + n], train_data[i + 1 : i + 1 + n].reshape(-1)
        model.zero_grad()
        hidden = tuple(h.detach() for h in hidden)
        output, hidden = model(x, hidden)
        loss = criterion(output, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
    model.eval()
    with torch.no_grad():
        output, _ = model(val_data[:-1], model.init_hidden(10))
        val = criterion(output, val_data[1:].reshape(-1)).item()
    if best is None or val < best:
        best = val
    else:
        lr /= 4.0
    print(epoch, loss.item(), val, lr)
