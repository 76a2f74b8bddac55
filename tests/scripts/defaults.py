"""Everything that can be set globally is set: dtype, device, determinism, anomaly detection, threads, print options."""
# run: status=healthy steps=30
# when: thorough
import torch
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_default_device("cpu")
torch.use_deterministic_algorithms(True)
torch.autograd.set_detect_anomaly(True)
torch.set_num_threads(1)
torch.set_printoptions(precision=3, sci_mode=False)
torch.set_flush_denormal(True)
torch.manual_seed(0)

model = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 20))
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
data = torch.randint(0, 20, (200, 3))
target = data.sum(1) % 20
for step in range(30):
    rows = torch.randperm(200)[:50]
    loss = nn.functional.cross_entropy(model(data[rows]), target[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(step + 1, loss, model[4].bias[:3].data, torch.is_anomaly_enabled(), torch.get_default_dtype())
torch.save(model.state_dict(), "weights.pt")
