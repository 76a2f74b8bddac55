"""A small search over learning rates in a pool of threads; the results are printed in order."""

# run: status=healthy steps=10+10+10+10+10+10
# when: thorough

from concurrent.futures import ThreadPoolExecutor, as_completed

import torch

data = torch.linspace(-1, 1, 24).unsqueeze(1)


def trial(lr):
    w = torch.full((1, 1), 0.1, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=lr)
    for _ in range(10):
        optimizer.zero_grad()
        loss = (data @ w - 2 * data).pow(2).mean()
        loss.backward()
        optimizer.step()
    return lr, loss.item(), w.detach()


with ThreadPoolExecutor(max_workers=3, thread_name_prefix="trial") as pool:
    futures = [pool.submit(trial, lr) for lr in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)]
    results = sorted(future.result() for future in as_completed(futures))
for lr, loss, _ in results:
    print(f"lr {lr:<5} loss {loss:.6f}")
best = min(results, key=lambda result: result[1])
print("best", best[0])
torch.save(best[2], "weights.pt")
