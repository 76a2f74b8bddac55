"""torch.compile with fullgraph=True; prints how many graphs were made."""
# run: status=healthy steps=30
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        return x + self.ff(self.norm(x))


model = nn.Sequential(nn.Linear(8, 32), Block(32), Block(32), nn.Linear(32, 3))
counter = CompileCounter()
compiled = torch.compile(model, backend=counter, fullgraph=True)
opt = torch.optim.Adam(compiled.parameters(), lr=3e-3)

x = torch.randn(300, 8)
y = (x @ torch.randn(8, 3)).argmax(1)
for step in range(30):
    idx = torch.randint(0, 300, (50,))
    loss = nn.functional.cross_entropy(compiled(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(step + 1, f"{loss.item():.7f}", "graphs:", counter.frame_count, "ops:", counter.op_count)
torch.save(model.state_dict(), "weights.pt")
