"""A time limit by SIGALRM: one that is not reached, and one that interrupts a wait."""

# run: status=healthy steps=9
# when: thorough

import contextlib
import signal
import time

import torch


class TooSlow(Exception):
    pass


@contextlib.contextmanager
def limit(seconds):
    def ring(number, frame):
        raise TooSlow(f"took more than {seconds} s, in {frame.f_code.co_name}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def wait_for_data():
    time.sleep(30)


torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
with limit(60):
    for _ in range(9):
        optimizer.zero_grad()
        loss = (model(torch.randn(6, 2)) + 1).pow(2).mean()
        loss.backward()
        optimizer.step()
    print(f"in time: {loss.item():.4f}")
try:
    with limit(0.05):
        wait_for_data()
except TooSlow as slow:
    print("stopped:", slow)
print(signal.getsignal(signal.SIGALRM) == signal.SIG_DFL, signal.getitimer(signal.ITIMER_REAL))
torch.save(model.state_dict(), "weights.pt")
