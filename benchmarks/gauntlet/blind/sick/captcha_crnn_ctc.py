"""CTC with a CNN that pools the width too much: the output has fewer frames than some labels need, so the loss is inf and the gradients NaN."""
# expects: nonfinite-loss, nonfinite-gradient
# report: https://github.com/ypwhs/captcha_break/issues/29
import torch
import torch.nn as nn

torch.manual_seed(0)
N_CHARS, H, W = 8, 12, 64
glyphs = (torch.rand(N_CHARS, H, 8) > 0.5).float()


def captcha():
    length = int(torch.randint(3, 7, (1,)))
    chars = torch.randint(0, N_CHARS, (length,))
    img = torch.zeros(H, W)
    for i, c in enumerate(chars):
        img[:, i * 10:i * 10 + 8] = glyphs[c]
    return img + 0.1 * torch.randn(H, W), chars + 1  # 0 is blank


def batch(n):
    ims, labs = zip(*[captcha() for _ in range(n)])
    return torch.stack(ims)[:, None], torch.cat(labs), torch.tensor([len(l) for l in labs])


class CRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d((2, 2)),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d((2, 2)),
            nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d((3, 2)),
        )
        self.rnn = nn.GRU(32, 48, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(96, N_CHARS + 1)

    def forward(self, x):
        f = self.cnn(x).squeeze(2).transpose(1, 2)
        f, _ = self.rnn(f)
        return self.fc(f).log_softmax(-1).transpose(0, 1)  # T, B, C


net = CRNN()
ctc = nn.CTCLoss(blank=0)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for it in range(150):
    x, targets, tlen = batch(16)
    logp = net(x)
    ilen = torch.full((x.size(0),), logp.size(0), dtype=torch.long)
    loss = ctc(logp, targets, ilen, tlen)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 10 == 0:
        print("iter", it, "frames", logp.size(0), "ctc loss", loss.item())
