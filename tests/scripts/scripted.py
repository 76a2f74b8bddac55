"""TorchScript, FX and vmap: a model that is scripted, one that is traced, one that is rewritten, and an ensemble in one."""
# run: status=healthy steps=15+15+15+15
# when: thorough
import copy
import warnings

import torch
from torch import fx, nn
from torch.func import functional_call, stack_module_state

warnings.filterwarnings("ignore", category=DeprecationWarning)
torch.manual_seed(0)
x = torch.randn(64, 6)
y = x[:, :1] - x[:, 1:2]


def make():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))


def fit(forward, parameters, target):
    opt = torch.optim.Adam(parameters, lr=1e-2)
    for _ in range(15):
        loss = nn.functional.mse_loss(forward(x), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


scripted = torch.jit.script(make())
print("script", fit(scripted, scripted.parameters(), y))
torch.save(scripted.state_dict(), "script.pt")

traced = torch.jit.trace(make(), x)
print("trace", fit(traced, traced.parameters(), y))

graph = fx.symbolic_trace(make())
print("fx", fit(graph, graph.parameters(), y))
print(graph.code)

models = [make() for _ in range(3)]
params, buffers = stack_module_state(models)
base = copy.deepcopy(models[0]).to("meta")
ensemble = torch.vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))
print("vmap", fit(lambda x: ensemble(params, buffers, x), list(params.values()), y.expand(3, -1, -1)))
torch.save(params, "vmap.pt")
