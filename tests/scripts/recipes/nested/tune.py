"""Run as `python -m recipes.nested.tune`: imports from the package above, and pickles its own class."""

# module: recipes.nested.tune
# run: status=healthy steps=8
# when: thorough

import multiprocessing
import pickle
import sys

import torch

from ..data import batches


class Settings:
    lr = 0.1


def child(settings, queue):
    queue.put((__name__, __package__, settings.lr))


if __name__ == "__main__":
    print(__name__, __spec__.name, __package__, type(pickle.loads(pickle.dumps(Settings()))) is Settings)
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(Settings(), queue))
    process.start()
    sys.stdout.flush()
    print(queue.get())
    process.join()

    torch.manual_seed(1)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=Settings.lr)
    for x, y in batches(8):
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.5f}")
    torch.save(model.state_dict(), "weights.pt")
