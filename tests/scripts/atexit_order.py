"""What is run at exit, in which order, and that it can still compute and save."""

# run: status=healthy steps=10

import atexit

import torch


@atexit.register
def first_registered():
    print("last:", f"{model.weight.sum().item():.5f}")
    torch.save(model.state_dict(), "weights.pt")


def setup(name):
    log = []

    def write():
        log.append("closed")
        print(name, log)

    atexit.register(write)
    return log


torch.manual_seed(0)
losses = setup("losses")
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
setup("registered while training")


def one_more_step():
    optimizer.zero_grad()
    loss = model(torch.ones(1, 3)).square().sum()
    loss.backward()
    print("one more step, not taken:", f"{loss.item():.5f}")


for _ in range(10):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 3)).square().sum()
    loss.backward()
    optimizer.step()
    losses.append(round(loss.item(), 4))
atexit.register(one_more_step)
forgotten = atexit.register(print, "never")
atexit.unregister(forgotten)
print("end of the script")
