"""A monitor in a daemon thread is still running when the script ends; who else is there is counted."""

# run: status=healthy steps=12
# when: thorough

import queue
import threading

import torch

print("threads:", threading.active_count(), [thread.name for thread in threading.enumerate()])

losses = queue.Queue()
seen = []


def monitor():
    while True:
        seen.append(losses.get())
        losses.task_done()


threading.Thread(target=monitor, daemon=True, name="monitor").start()

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    x = torch.randn(8, 3)
    loss = torch.nn.functional.mse_loss(model(x), x[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.put(loss.item())
losses.join()
print("threads:", threading.active_count(), sorted(thread.name for thread in threading.enumerate()))
print("seen:", len(seen), f"{seen[-1]:.5f}")
torch.save(model.state_dict(), "weights.pt")
