"""One sample of the data set is broken."""

# exit: 1
# stderr: ValueError: sample 13 is broken
# run: status=crashed steps=3
# when: thorough

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        if index == 13:
            raise ValueError(f"sample {index} is broken")
        return torch.tensor([index / 32.0]), torch.tensor([index / 16.0])


torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for inputs, targets in DataLoader(Samples(), batch_size=4):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.6f}")
finally:
    torch.save(model.state_dict(), "weights.pt")
    print("saved what there is")
