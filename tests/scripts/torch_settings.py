"""Global settings of torch and its random numbers: as they were set, before and after training."""

# run: status=healthy steps=10
# when: thorough

import random

import numpy
import torch


def settings():
    print(torch.initial_seed(), torch.get_default_dtype(), torch.get_default_device())
    print(torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled(), torch.is_anomaly_enabled())
    print(torch.get_num_threads(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled())
    print(torch.backends.mkldnn.enabled, torch.get_float32_matmul_precision())
    print(f"{torch.rand(1).item():.12f} {numpy.random.rand():.12f} {random.random():.12f}")
    print(hash(tuple(torch.get_rng_state().tolist())), torch.tensor([1 / 3, 2e6]))


torch.manual_seed(1234)
numpy.random.seed(5)
random.seed(6)
settings()
torch.set_default_dtype(torch.float64)
torch.use_deterministic_algorithms(True)
torch.set_printoptions(precision=2, sci_mode=False)
settings()
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.GELU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.NAdam(model.parameters(), lr=0.01)
for _ in range(10):
    x = torch.randn(16, 4)
    loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.dtype, f"{loss.item():.12f}")
settings()
torch.save(model.state_dict(), "weights.pt")
