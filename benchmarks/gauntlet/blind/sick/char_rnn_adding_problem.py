"""A vanilla ReLU RNN over 60 steps whose recurrent matrix is initialised with gain 1.6 and no clipping: gradients of 1e6 and more throw the weights away."""
# expects: gradient-explosion, bad-initialization, loss-explosion
# report: folklore
import torch
import torch.nn as nn

torch.manual_seed(4)
SEQ, HID = 60, 64


def adding_batch(n):
    v = torch.rand(n, SEQ)
    m = torch.zeros(n, SEQ)
    i = torch.randint(0, SEQ // 2, (n, 1))
    j = torch.randint(SEQ // 2, SEQ, (n, 1))
    m.scatter_(1, i, 1.0)
    m.scatter_(1, j, 1.0)
    return torch.stack([v, m], -1), (v * m).sum(1, keepdim=True)


class AddingRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(2, HID, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(HID, 1)
        nn.init.orthogonal_(self.rnn.weight_hh_l0, gain=1.6)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1])


model = AddingRNN()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for it in range(301):
    x, y = adding_batch(64)
    loss = ((model(x) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 20 == 0:
        print(f"iter {it:4d} mse {loss.item():.6g}")
