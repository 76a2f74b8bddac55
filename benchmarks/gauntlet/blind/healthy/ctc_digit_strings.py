"""CTC on synthetic frame sequences: loss sits on the all-blank plateau for a while and then drops; log_softmax before CTCLoss is right, zero_infinity on."""
# expects:
import torch
import torch.nn as nn

torch.manual_seed(7)
V, F_, T = 5, 10, 24
proto = torch.randn(V, F_)


def batch(n):
    xs = 0.3 * torch.randn(n, T, F_)
    lens = torch.randint(2, 5, (n,))
    targets = []
    for i in range(n):
        pos = 1
        for k in range(int(lens[i])):
            s = int(torch.randint(1, V + 1, (1,)))
            dur = int(torch.randint(2, 5, (1,)))
            xs[i, pos:pos + dur] += proto[s - 1]
            pos += dur + 1
            targets.append(s)
    return xs, torch.tensor(targets), lens


class Net(nn.Module):
    def __init__(self, h=48):
        super().__init__()
        self.conv = nn.Conv1d(F_, h, 3, padding=1)
        self.rnn = nn.GRU(h, h, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * h, V + 1)

    def forward(self, x):
        h = torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.fc(self.rnn(h)[0]).log_softmax(-1).transpose(0, 1)


def greedy(lp):
    out = []
    for seq in lp.argmax(-1).T.tolist():
        o, prev = [], 0
        for s in seq:
            if s != prev and s != 0:
                o.append(s)
            prev = s
        out.append(o)
    return out


net = Net()
crit = nn.CTCLoss(blank=0, zero_infinity=True)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for it in range(200):
    x, tgt, tl = batch(32)
    lp = net(x)
    loss = crit(lp, tgt, torch.full((32,), T), tl)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    if it % 40 == 39:
        with torch.no_grad():
            x, tgt, tl = batch(200)
            ref = [r.tolist() for r in tgt.split(tl.tolist())]
            acc = sum(a == b for a, b in zip(greedy(net(x)), ref)) / 200
        print(f"{it + 1} loss {loss.item():.3f} exact sequence acc {acc:.3f}")
