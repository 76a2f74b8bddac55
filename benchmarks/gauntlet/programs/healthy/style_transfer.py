"""Neural style transfer: the image is optimised with L-BFGS, the network is frozen."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1), nn.ReLU()).eval()
for p in cnn.parameters():
    p.requires_grad_(False)
content = F.interpolate(torch.rand(1, 3, 4, 4), size=20, mode="bilinear")
style = torch.rand(1, 3, 20, 20)


def gram(f):
    f = f.flatten(2).squeeze(0)
    return f @ f.T / f.numel()


with torch.no_grad():
    content_target, style_target = cnn(content), gram(cnn(style))
image = content.clone().requires_grad_(True)
optimizer = torch.optim.LBFGS([image])
run = [0]
while run[0] <= 60:

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        features = cnn(image)
        loss = 1e6 * F.mse_loss(gram(features), style_target) + 10 * F.mse_loss(features, content_target)
        loss.backward()
        run[0] += 1
        if run[0] % 20 == 0:
            print(run[0], loss.item())
        return loss

    optimizer.step(closure)
