"""clip_grad_norm_ is called after optimizer.step(): it clips gradients that were already used, so the RNN trains unclipped although clipping at 0.5 was meant."""
# expects: ineffective-clipping
# report: https://github.com/jongwook/onsets-and-frames/issues/24
import torch
import torch.nn as nn

torch.manual_seed(0)


def melody(n, t=50):
    """next-value prediction of two mixed sines with random phase"""
    k = torch.arange(t + 1).float()
    a = torch.rand(n, 1) * 6.28
    f = 0.2 + 0.3 * torch.rand(n, 1)
    s = torch.sin(f * k + a) + 0.5 * torch.sin(2.1 * f * k)
    return s[:, :-1, None], s[:, 1:, None]


class Net(nn.Module):
    def __init__(self, h=48):
        super().__init__()
        self.rnn = nn.RNN(1, h, nonlinearity="relu", batch_first=True)
        self.fc = nn.Linear(h, 1)
        nn.init.orthogonal_(self.rnn.weight_hh_l0, gain=1.2)

    def forward(self, x):
        return self.fc(self.rnn(x)[0])


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for i in range(200):
    x, y = melody(32)
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    if i % 25 == 0:
        print(f"iter {i} loss {loss.item():.5f}")
