"""A thread fails while the main one trains: its traceback is written, and the script goes on."""

# stderr: Exception in thread Logger:
# stderr: ConnectionError: no server
# run: status=healthy steps=10
# when: thorough

import sys
import threading

import torch


def upload(batches):
    raise ConnectionError("no server")


def leave():
    sys.exit("nobody reads this")


torch.manual_seed(0)
for target, name in ((upload, "Logger"), (leave, "Leaver")):
    thread = threading.Thread(target=target, name=name, args=([1, 2],) if target is upload else ())
    thread.start()
    thread.join()
    print(name, "alive:", thread.is_alive())

threading.excepthook = lambda args: print("own hook:", args.exc_type.__name__, args.exc_value, args.thread.name)
thread = threading.Thread(target=upload, name="Second", args=([],))
thread.start()
thread.join()

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 2)).square().mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
torch.save(model.state_dict(), "weights.pt")
