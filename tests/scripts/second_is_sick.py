"""Three trials, the second one with a learning rate that blows it up."""
# run: status=critical steps=50+50+50
# when: thorough
# findings: lr-too-high
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(512, 20)
y = (x @ torch.randn(20, 4)).argmax(1)


def trial(lr):
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    opt = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(50):
        i = torch.randint(512, (64,))
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


for lr in (0.1, 10.0, 0.05):
    print(lr, trial(lr))
