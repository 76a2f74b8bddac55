"""Five Linear layers stacked with only dropout between them - no activation: the net is linear and cannot learn the checkerboard."""
# expects: missing-activation, loss-plateau
# report: https://stats.stackexchange.com/questions/352036/what-should-i-do-when-my-neural-network-doesnt-learn
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class DeepNet(nn.Module):
    def __init__(self, n_in, n_hidden, n_out, depth=4, p=0.05):
        super().__init__()
        self.input = nn.Linear(n_in, n_hidden)
        self.hidden = nn.ModuleList([nn.Linear(n_hidden, n_hidden) for _ in range(depth)])
        self.dropout = nn.Dropout(p)
        self.output = nn.Linear(n_hidden, n_out)

    def forward(self, x):
        x = self.input(x)
        for layer in self.hidden:
            x = self.dropout(layer(x))
        return self.output(x)


torch.manual_seed(0)
pts = torch.rand(3000, 2) * 2 - 1
lab = ((pts * 1.5).floor().sum(1) % 2).long()
train_dl = DataLoader(TensorDataset(pts[:2500], lab[:2500]), batch_size=50, shuffle=True)
net = DeepNet(2, 48, 2)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
ce = nn.CrossEntropyLoss()
for epoch in range(8):
    net.train()
    for x, y in train_dl:
        opt.zero_grad()
        loss = ce(net(x), y)
        loss.backward()
        opt.step()
    net.eval()
    with torch.no_grad():
        acc = (net(pts[2500:]).argmax(1) == lab[2500:]).float().mean()
    print(f"epoch {epoch} loss {loss.item():.4f} acc {acc:.4f}")
