"""A character model whose output layer shares its weight with the embedding."""
# run: status=healthy steps=60
# when: thorough
import torch
import torch.nn as nn

torch.manual_seed(0)
text = "the quick brown fox jumps over the lazy dog. " * 20
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])


class CharLM(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab, bias=False)
        self.out.weight = self.emb.weight
        nn.init.normal_(self.emb.weight, std=dim ** -0.5)

    def forward(self, idx, h=None):
        y, h = self.rnn(self.emb(idx), h)
        return self.out(y), h


model = CharLM(len(chars), 48)
print("parameters:", sum(p.numel() for p in model.parameters()), "names:", [n for n, _ in model.named_parameters()])
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
for it in range(60):
    ix = torch.randint(0, len(data) - 17, (16,))
    xb = torch.stack([data[i:i + 16] for i in ix])
    yb = torch.stack([data[i + 1:i + 17] for i in ix])
    logits, _ = model(xb)
    loss = nn.functional.cross_entropy(logits.reshape(-1, len(chars)), yb.reshape(-1))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if it % 15 == 14:
        print(f"iter {it + 1}: {loss.item():.5f}")

model.eval()
with torch.inference_mode():
    idx, h, out = data[:1].view(1, 1), None, []
    for _ in range(30):
        logits, h = model(idx, h)
        idx = logits[:, -1].argmax(-1, keepdim=True)
        out.append(chars[idx.item()])
print("".join(out))
torch.save(model.state_dict(), "weights.pt")
