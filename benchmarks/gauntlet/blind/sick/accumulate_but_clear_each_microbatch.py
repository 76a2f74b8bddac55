"""zero_grad at the top of every micro-batch throws the accumulated gradients away: of each 8 micro-batches only the last one counts."""
# expects: accumulation-mismatch, lost-gradient
# report: https://github.com/Morizeyao/GPT2-Chinese/pull/101
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
V, T, D = 16, 12, 32
trans = torch.softmax(2.5 * torch.randn(V, V), 1)


def markov(n):
    s = [torch.randint(V, (n,))]
    for _ in range(T):
        s.append(torch.multinomial(trans[s[-1]], 1).squeeze(1))
    return torch.stack(s, 1)


class LSTMLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(V, D)
        self.l = nn.LSTM(D, 64, batch_first=True)
        self.o = nn.Linear(64, V)

    def forward(self, x):
        return self.o(self.l(self.e(x))[0])


model = LSTMLM()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
gradient_accumulation_steps = 8
running, overall_step = 0.0, 0
for step in range(800):
    seq = markov(4)
    opt.zero_grad()
    logits = model(seq[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, V), seq[:, 1:].reshape(-1))
    loss = loss / gradient_accumulation_steps
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    running += loss.item()
    if (step + 1) % gradient_accumulation_steps == 0:
        opt.step()
        overall_step += 1
        if overall_step % 10 == 0:
            print(f"step {overall_step} loss {running/10:.4f}")
            running = 0.0
