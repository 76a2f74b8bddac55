"""Magnitude pruning to 80% sparsity with torch.nn.utils.prune, rewind and retrain: four fifths of the weights are exactly zero and stay so."""
# expects:
# source: https://docs.pytorch.org/tutorials/intermediate/pruning_tutorial.html
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.prune as prune

torch.manual_seed(0)
A = torch.randn(15, 40) / 15 ** 0.5
Bm = torch.randn(40, 4)


def data(n):
    x = torch.randn(n, 15)
    return x, (torch.relu(x @ A) @ Bm).argmax(1)


X, Y = data(5000)
Xt, Yt = data(1000)
model = nn.Sequential(nn.Linear(15, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
init = copy.deepcopy(model.state_dict())


def fit(epochs, tag):
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for e in range(epochs):
        for b in torch.randperm(5000).split(100):
            opt.zero_grad()
            loss = F.cross_entropy(model(X[b]), Y[b])
            loss.backward()
            opt.step()
    with torch.no_grad():
        print(f"{tag}: loss {loss.item():.3f} test acc {(model(Xt).argmax(1) == Yt).float().mean():.3f}")


fit(4, "dense")
layers = [(m, "weight") for m in model if isinstance(m, nn.Linear)]
prune.global_unstructured(layers, pruning_method=prune.L1Unstructured, amount=0.8)
with torch.no_grad():
    for i in (0, 2, 4):
        model[i].weight_orig.copy_(init[f"{i}.weight"])
        model[i].bias.copy_(init[f"{i}.bias"])
fit(5, "ticket rewound to init, 80% sparse")
print("sparsity", [round((m.weight == 0).float().mean().item(), 2) for m, _ in layers])
