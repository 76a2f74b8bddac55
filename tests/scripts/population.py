"""Population based training: eight members take turns, the worst copy the best and vary its learning rate."""
# run: status=healthy steps=any runs=any
# when: thorough
# findings: none
import copy
import random

import torch
from torch import nn

random.seed(3)
torch.manual_seed(3)
x = torch.randn(128, 6)
y = (x @ torch.randn(6, 3)).argmax(1)


class Member:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=random.choice([0.02, 0.05, 0.1]), momentum=0.9)
        self.score = None

    def train(self, steps):
        for _ in range(steps):
            i = torch.randint(128, (32,))
            loss = nn.functional.cross_entropy(self.net(x[i]), y[i])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        with torch.no_grad():
            self.score = nn.functional.cross_entropy(self.net(x), y).item()


population = [Member() for _ in range(8)]
for generation in range(4):
    for member in population:
        member.train(5)
    population.sort(key=lambda m: m.score)
    print(generation, [round(m.score, 5) for m in population])
    for good, bad in zip(population[:2], population[-2:]):
        bad.net.load_state_dict(good.net.state_dict())
        bad.opt.load_state_dict(copy.deepcopy(good.opt.state_dict()))
        for group in bad.opt.param_groups:
            group["lr"] *= random.choice([0.8, 1.2])
torch.save(population[0].net.state_dict(), "weights.pt")
