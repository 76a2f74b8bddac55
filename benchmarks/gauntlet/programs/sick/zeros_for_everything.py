"""All weights initialised with zeros 'to be neutral': units that start equal stay equal."""
# expects: bad-initialization, loss-plateau, gradient-vanishing, dead-units, constant-output
# report: https://stackoverflow.com, "why is my network outputting the same for each class"

import torch
import torch.nn as nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self, n_in, n_hidden, n_out):
        super().__init__()
        self.w1 = nn.Parameter(torch.zeros(n_in, n_hidden))
        self.b1 = nn.Parameter(torch.zeros(n_hidden))
        self.w2 = nn.Parameter(torch.zeros(n_hidden, n_out))
        self.b2 = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        h = torch.sigmoid(x @ self.w1 + self.b1)
        return h @ self.w2 + self.b2


x = torch.randn(900, 10)
y = (x[:, 0] * x[:, 1] > 0).long() + 2 * (x[:, 2] > 0).long()
model = Classifier(10, 50, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(10):
    for i in range(0, 900, 30):
        loss = nn.functional.cross_entropy(model(x[i : i + 30]), y[i : i + 30])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
