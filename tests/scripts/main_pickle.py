"""Classes of the script go through pickle, copy and torch.save, and come back as themselves."""

# run: status=healthy steps=20

import copy
import dataclasses
import enum
import pickle
import typing

import torch
from torch import nn


class Mode(enum.Enum):
    TRAIN = 1
    TEST = 2


@dataclasses.dataclass
class State:
    mode: Mode
    best: "float"
    weights: "typing.Optional[torch.Tensor]" = None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 1)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def fit(model, optimizer, steps):
    for _ in range(steps):
        x = torch.randn(8, 3)
        optimizer.zero_grad()
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loss = fit(model, optimizer, 10)

state = State(Mode.TRAIN, round(loss, 4), model.layers[1].weight.detach())
data = pickle.dumps(state)
again = pickle.loads(data)
print(type(again) is State, again.mode is Mode.TRAIN, again)
print(typing.get_type_hints(State)["weights"], Net.__module__, Net.__qualname__, len(data))

twin = copy.deepcopy(model)
print(type(twin) is Net, all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters())))
print(sorted(vars(twin)) == sorted(vars(Net())), [len(hooks) for hooks in (twin._forward_hooks, twin._forward_pre_hooks)])
print(sorted(vars(optimizer)) == sorted(vars(torch.optim.SGD(twin.parameters(), lr=1.0, momentum=0.9))))

torch.save(model, "model.pt")
torch.save(optimizer, "optimizer.pt")
loaded = torch.load("model.pt", weights_only=False)
print(type(loaded) is Net, len(pickle.dumps(model)) == len(pickle.dumps(loaded)))
print(f"{fit(model, optimizer, 10):.6f}")
print(optimizer.step.__qualname__, model.forward.__qualname__, torch.Tensor.backward.__qualname__)
torch.save(model.state_dict(), "weights.pt")
