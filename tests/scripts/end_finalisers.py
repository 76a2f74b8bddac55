"""What is run when the interpreter ends: weakref.finalize, __del__, a generator's finally, an open file."""

# run: status=healthy steps=5
# when: thorough

import atexit
import tempfile
import weakref

import torch


class Resource:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("deleted", self.name)


def stream():
    try:
        while True:
            yield torch.randn(4, 2)
    finally:
        print("the stream is closed")


class Logged(torch.nn.Linear):
    def __del__(self):
        print("the model is deleted")


atexit.register(print, "registered first")
torch.manual_seed(0)
model = Logged(2, 1)
model.resource = Resource("of the model")
kept = Resource("kept")
scratch = tempfile.TemporaryDirectory()
weakref.finalize(kept, print, "finalize kept")
batches = stream()
log = open("log.txt", "w")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(next(batches)).square().mean()
    loss.backward()
    optimizer.step()
    log.write(f"{loss.item():.5f}\n")
atexit.register(print, "registered last")
torch.save(model.state_dict(), "weights.pt")
print("end")
