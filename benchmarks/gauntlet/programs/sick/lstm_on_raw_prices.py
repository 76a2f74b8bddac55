"""An LSTM predicts a share price in the thousands from raw prices."""
# expects: unnormalized-target, unnormalized-input, saturated-units

import torch
from torch import nn


class StockLSTM(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1])


torch.manual_seed(0)
price = 4000 + torch.cumsum(15 * torch.randn(1200), 0)
windows = price.unfold(0, 21, 1)
model = StockLSTM()
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    for i in torch.randperm(len(windows)).split(32):
        x, y = windows[i, :20].unsqueeze(-1), windows[i, 20:]
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
