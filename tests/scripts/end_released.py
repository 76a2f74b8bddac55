"""After training nothing is kept alive by anybody: the model, the loss, the batches are gone when deleted."""

# run: status=healthy steps=16
# when: thorough

import gc
import weakref

import torch

gc.disable()


def tensors():
    return sum(type(thing) in (torch.Tensor, torch.nn.Parameter) for thing in gc.get_objects())


def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(16):
        x = torch.randn(8, 4)
        batches.append(weakref.ref(x))
        loss = (model(x) - x[:, :1]).square().mean()
        losses.append(weakref.ref(loss))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 8:
            print("alive:", [ref() is not None for ref in batches], [ref() is not None for ref in losses])
    torch.save(model.state_dict(), "weights.pt")
    return model, optimizer, loss


before = tensors()
batches, losses = [], []
model, optimizer, loss = train()
references = [weakref.ref(thing) for thing in (model, model[0], model[0].weight, model[0].weight.grad, optimizer, loss)]
print([reference() is None for reference in references])
del loss
print([reference() is None for reference in references])
del model, optimizer
print([reference() is None for reference in references[2:4]])
print("collected:", gc.collect() > 0)
print([reference() is None for reference in references])
print("tensors left:", tensors() - before)
print("batches left:", sum(ref() is not None for ref in batches), "losses left:", sum(ref() is not None for ref in losses))
