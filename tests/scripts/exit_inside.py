"""SystemExit from deep inside, through `with` and `finally`, past an `except Exception`."""

# exit: 4
# run: status=healthy steps=3
# when: thorough

import contextlib

import torch


@contextlib.contextmanager
def phase(name):
    print("enter", name)
    try:
        yield
    except SystemExit as leaving:
        print("leaving", name, "with", leaving.code)
        raise
    finally:
        print("finally", name)


def train_step(model, optimizer, step):
    x = torch.full((2, 2), float(step + 1) / 10)
    loss = model(x).square().sum()
    optimizer.zero_grad()
    loss.backward()
    if step == 3:
        raise SystemExit(4)
    optimizer.step()


torch.manual_seed(0)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
with phase("outer"):
    for step in range(10):
        try:
            with phase(f"step {step}"):
                train_step(model, optimizer, step)
        except Exception as error:
            print("caught", error)
        finally:
            torch.save(model.state_dict(), "weights.pt")
