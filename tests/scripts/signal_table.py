"""Looks at the handlers, sets its own around training, and puts the old ones back."""

# run: status=healthy steps=10
# when: thorough

import signal

import torch

WATCHED = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD, signal.SIGPIPE]


def show(title):
    print(title)
    for number in WATCHED:
        handler = signal.getsignal(number)
        print("   ", number.name, getattr(handler, "__name__", None) or str(handler))
    print("    blocked:", sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))


received = []


def note(number, frame):
    received.append(signal.Signals(number).name)


show("at first")
before = {number: signal.signal(number, note) for number in WATCHED[:5]}
show("while training")

torch.manual_seed(0)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(10):
    optimizer.zero_grad()
    model(torch.eye(2)).norm().backward()
    if step in (3, 7):
        signal.raise_signal(WATCHED[step // 3])
    optimizer.step()
signal.raise_signal(signal.SIGUSR1)
print("received", received)

for number, handler in before.items():
    signal.signal(number, handler)
show("at last")
torch.save(model.state_dict(), "weights.pt")
