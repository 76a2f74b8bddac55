"""bfloat16 autocast on the CPU."""
# run: status=healthy steps=30
# when: thorough
import torch
from torch import nn

torch.manual_seed(0)
x, w = torch.randn(512, 32), torch.randn(32, 8)
y = (x @ w).argmax(dim=-1)

model = nn.Sequential(nn.Linear(32, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 8))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)

for step in range(30):
    ix = torch.randint(0, len(x), (64,))
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        logits = model(x[ix])
        loss = nn.functional.cross_entropy(logits, y[ix])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 6 == 0:
        print(f"step {step:3d} | loss {loss.item():.6f} | norm {norm:.4f} | {logits.dtype}")
torch.save(model.state_dict(), "weights.pt")
