"""nn.TransformerEncoder sequence classifier with padding mask under bf16 autocast, Noam-style warmup through LambdaLR and label smoothing (so the loss cannot reach zero)."""
# expects:
import torch
import torch.nn as nn

torch.manual_seed(0)
V, L, D = 20, 16, 48


def batch(n):
    x = torch.randint(2, V, (n, L))
    lens = torch.randint(8, L + 1, (n,))
    pad = torch.arange(L)[None] >= lens[:, None]
    x[pad] = 0
    # class: which of the tokens 2, 3, 4 appears most (ties -> 0)
    cnt = torch.stack([(x == k).sum(1) for k in (2, 3, 4)], 1)
    top2 = cnt.topk(2, 1).values
    y = torch.where(top2[:, 0] == top2[:, 1], 0, cnt.argmax(1) + 1)
    return x, pad, y


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D, padding_idx=0)
        self.pos = nn.Parameter(0.02 * torch.randn(1, L, D))
        layer = nn.TransformerEncoderLayer(D, 4, 96, dropout=0.05, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(D)
        self.fc = nn.Linear(D, 4)

    def forward(self, x, pad):
        h = self.norm(self.enc(self.emb(x) + self.pos, src_key_padding_mask=pad))
        keep = (~pad).unsqueeze(-1).to(h.dtype)
        return self.fc((h * keep).sum(1) / keep.sum(1))


model = Classifier()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
warm = 20
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) / warm, (warm / (s + 1)) ** 0.5))
crit = nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(1, 121):
    model.train()
    x, pad, y = batch(32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x, pad)
    loss = crit(logits.float(), y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 30 == 0:
        model.eval()
        with torch.no_grad():
            x, pad, y = batch(500)
            acc = (model(x, pad).argmax(1) == y).float().mean()
        print(f"step {step} lr {sched.get_last_lr()[0]:.5f} loss {loss.item():.3f} acc {acc:.3f}")
