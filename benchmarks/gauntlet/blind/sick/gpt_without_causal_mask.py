"""A decoder-only LM trained on next tokens without a causal mask: it reads the next token from its input, the loss falls below the entropy of the data and generation is garbage."""
# expects: target-leak
# report: https://github.com/alex-matton/causal-transformer-decoder/issues/1
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
V, T, D = 20, 16, 32
trans = torch.softmax(1.2 * torch.randn(V, V), 1)


def corpus(n):
    s = [torch.randint(V, (n,))]
    for _ in range(T):
        s.append(torch.multinomial(trans[s[-1]], 1).squeeze(1))
    return torch.stack(s, 1)


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(V, D)
        self.pos = nn.Embedding(T, D)
        layer = nn.TransformerEncoderLayer(D, 4, 96, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(D, V)

    def forward(self, x):
        h = self.tok(x) + self.pos(torch.arange(x.size(1)))
        return self.head(self.blocks(h))


@torch.no_grad()
def generate(model, n=15):
    x = torch.randint(V, (1, 1))
    for _ in range(n):
        p = F.softmax(model(x)[:, -1], -1)
        x = torch.cat([x, torch.multinomial(p, 1)], 1)
    return x[0].tolist()


ent = -(trans * trans.log()).sum(1).mean().item()
print(f"entropy of the source about {ent:.3f} nats per token")
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(260):
    s = corpus(32)
    logits = model(s[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, V), s[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
print(generate(model))
