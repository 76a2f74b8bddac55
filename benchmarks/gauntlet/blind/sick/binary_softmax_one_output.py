"""A single-output binary classifier ends in Softmax(dim=1): the softmax over one element is always 1, nothing can be learned."""
# expects: constant-output, missing-gradient, gradient-vanishing
# report: https://github.com/FluxML/Flux.jl/issues/1546
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader


class Tumours(Dataset):
    def __init__(self, n=2000, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 15, generator=g)
        w = torch.linspace(-1, 1, 15)
        self.y = ((self.x * w).sum(1) + 0.5 * self.x[:, 0] * self.x[:, 3] > 0).float()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, idx):
        return self.x[idx], self.y[idx]


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.fc1 = nn.Linear(15, 32)
        self.fc2 = nn.Linear(32, 16)
        self.fc3 = nn.Linear(16, 1)
        self.relu = nn.ReLU()
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        return self.softmax(self.fc3(x))


torch.manual_seed(0)
loader = DataLoader(Tumours(), batch_size=50, shuffle=True)
net = Net()
criterion = nn.BCELoss()
optimizer = torch.optim.Adam(net.parameters(), lr=0.001)
for epoch in range(5):
    running_loss, correct = 0.0, 0
    for inputs, labels in loader:
        optimizer.zero_grad()
        outputs = net(inputs).squeeze(1)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
        correct += ((outputs > 0.5).float() == labels).sum().item()
    print("Epoch %d loss: %.3f acc: %.3f" % (epoch + 1, running_loss / len(loader), correct / 2000))
