"""NLLLoss is given softmax probabilities instead of log-probabilities: the loss is negative, gradients vanish when the model is wrong, classes get stuck."""
# expects: loss-input-mismatch
# report: https://runebook.dev/en/docs/pytorch/generated/torch.nn.nllloss/torch.nn.NLLLoss
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
CL = 20
centres = torch.randn(CL, 10) * 1.5


def batch(n):
    y = torch.randint(CL, (n,))
    return centres[y] + 0.6 * torch.randn(n, 10), y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 64)
        self.fc2 = nn.Linear(64, CL)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        return F.softmax(self.fc2(x), dim=1)


net = Net()
criterion = nn.NLLLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
ma = 0.0
for i in range(1, 601):
    x, y = batch(32)
    out = net(x)
    loss = criterion(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ma += loss.item()
    if i % 60 == 0:
        print(f"[{i}] loss {ma/60:.4f} acc {(out.argmax(1) == y).float().mean():.3f}")
        ma = 0.0
