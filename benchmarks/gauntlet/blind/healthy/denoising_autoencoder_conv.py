"""Denoising conv autoencoder, notebook style: noisy input, clean target, sigmoid output with MSE on images in [0,1]."""
# expects:
import torch
import torch.nn as nn

torch.manual_seed(0)


def make_images(n):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
    a = torch.rand(n, 1, 1) * 3.14
    o = torch.rand(n, 1, 1) * 0.8 - 0.4
    d = (a.cos() * xx + a.sin() * yy - o).abs()
    return torch.sigmoid((0.25 - d) * 15).unsqueeze(1)


train_x, test_x = make_images(2000), make_images(300)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
    nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.ReLU(),
    nn.ConvTranspose2d(16, 16, 2, stride=2), nn.ReLU(),
    nn.ConvTranspose2d(16, 1, 2, stride=2), nn.Sigmoid())
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = nn.MSELoss()
test_noisy = (test_x + 0.4 * torch.randn_like(test_x)).clamp(0, 1)
for epoch in range(6):
    perm = torch.randperm(len(train_x))
    total = 0.0
    for i in range(0, len(perm), 40):
        clean = train_x[perm[i:i + 40]]
        noisy = (clean + 0.4 * torch.randn_like(clean)).clamp(0, 1)
        out = model(noisy)
        loss = criterion(out, clean)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(clean)
    with torch.no_grad():
        v = criterion(model(test_noisy), test_x).item()
    print(f"epoch {epoch + 1}, train loss {total / 2000:.5f}, test mse {v:.5f}, mse of noisy input {criterion(test_noisy, test_x).item():.5f}")
