"""One sample of the data set is broken, and a worker process finds it."""

# exit: 1
# stderr: KeyError: Caught KeyError in DataLoader worker process 1.
# loose: stderr
# run: status=crashed steps=3
# when: thorough

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    labels = {index: float(index % 3) for index in range(32) if index != 13}

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.tensor([index / 32.0]), torch.tensor([self.labels[index]])


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in DataLoader(Samples(), batch_size=4, num_workers=2):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.6f}", flush=True)
        torch.save(model.state_dict(), "weights.pt")


if __name__ == "__main__":
    main()
