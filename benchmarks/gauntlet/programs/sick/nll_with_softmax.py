"""NLLLoss on probabilities: it wants log-probabilities."""
# expects: loss-input-mismatch, double-softmax

import torch
import torch.nn as nn
import torch.nn.functional as F


class RNNClassifier(nn.Module):
    def __init__(self, letters=26, hidden=48, languages=6):
        super().__init__()
        self.rnn = nn.GRU(letters, hidden, batch_first=True)
        self.h2o = nn.Linear(hidden, languages)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, names):
        return self.softmax(self.h2o(self.rnn(names)[1][0]))


torch.manual_seed(0)
profile = torch.softmax(2 * torch.randn(6, 26), 1)
model = RNNClassifier()
criterion = nn.NLLLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(150):
    language = torch.randint(0, 6, (32,))
    letters = torch.multinomial(profile[language], 8, replacement=True)
    loss = criterion(model(F.one_hot(letters, 26).float()), language)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
