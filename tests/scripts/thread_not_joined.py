"""Trains in a thread that the main thread does not wait for: the interpreter does."""

# run: status=healthy steps=20
# when: thorough

import threading

import torch


def train():
    threading.main_thread().join()  # until the script itself is at its end
    for step in range(20):
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 5 == 4:
            print(f"step {step + 1}: {loss.item():.5f}")
    torch.save(model.state_dict(), "weights.pt")
    print("saved by", threading.current_thread().name)


torch.manual_seed(0)
x = torch.randn(30, 3)
y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
threading.Thread(target=train, name="trainer").start()
print("the script is at its end")
