"""Looks at its own source: inspect, doctest, a traceback that quotes a line.

>>> decayed(1.0, 2)
0.25
"""

# run: status=healthy steps=4
# when: thorough

import doctest
import inspect
import linecache
import sys

import torch


def decayed(lr, epoch):
    """Halves the learning rate every epoch.

    >>> decayed(0.5, 1)
    0.25
    >>> [decayed(1, epoch) for epoch in range(3)]
    [1.0, 0.5, 0.25]
    """
    return lr * 0.5**epoch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x)  # the one line


print(inspect.getsource(decayed).splitlines()[0], "|", inspect.getsource(Net.forward).strip())
print(inspect.getsourcefile(Net) == inspect.getsourcefile(decayed), inspect.getmodule(decayed) is sys.modules["__main__"])
print(linecache.getline(__file__, 1).strip(), inspect.currentframe().f_lineno, inspect.signature(Net.forward))
print(doctest.testmod())

torch.manual_seed(0)
net = Net()
for epoch in range(4):
    optimizer = torch.optim.SGD(net.parameters(), lr=decayed(0.1, epoch))
    loss = net(torch.eye(2)).square().sum()
    loss.backward()
    optimizer.step()
    net.zero_grad()
print(f"{loss.item():.5f}")
open("source.txt", "w").write(inspect.getsource(Net))
torch.save(net.state_dict(), "weights.pt")
