"""DCGAN tutorial shrunk to 16x16 blobs: D and G losses swing against each other and G's loss goes up, as in any GAN; samples match the data statistics at the end."""
# expects:
# source: https://docs.pytorch.org/tutorials/beginner/dcgan_faces_tutorial.html
import torch
import torch.nn as nn
import torch.optim as optim

torch.manual_seed(999)
nz, ngf, ndf, batch, iters = 16, 16, 16, 48, 300
real_label, fake_label = 0.9, 0.0


def real_images(n):
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
    c = torch.rand(2, n, 1, 1) * 0.8 - 0.4
    s = torch.rand(n, 1, 1) * 0.12 + 0.2
    img = torch.exp(-((xx - c[0]) ** 2 + (yy - c[1]) ** 2) / (2 * s ** 2))
    return (img * 2 - 1).unsqueeze(1)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
    nn.ConvTranspose2d(ngf, 1, 4, 2, 1, bias=False), nn.Tanh())
netD = nn.Sequential(
    nn.Conv2d(1, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False))
netG.apply(weights_init)
netD.apply(weights_init)
criterion = nn.BCEWithLogitsLoss()
optimizerD = optim.Adam(netD.parameters(), lr=4e-4, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=1e-3, betas=(0.5, 0.999))
fixed_noise = torch.randn(256, nz, 1, 1)
dataset = real_images(6000)
it = 0
while it < iters:
    perm = torch.randperm(len(dataset))
    for k in range(0, len(dataset) - batch + 1, batch):
        netD.zero_grad()
        real = dataset[perm[k:k + batch]]
        out = netD(real).view(-1)
        errD_real = criterion(out, torch.full((batch,), real_label))
        errD_real.backward()
        fake = netG(torch.randn(batch, nz, 1, 1))
        out = netD(fake.detach()).view(-1)
        errD_fake = criterion(out, torch.full((batch,), fake_label))
        errD_fake.backward()
        optimizerD.step()
        netG.zero_grad()
        out = netD(fake).view(-1)
        errG = criterion(out, torch.ones(batch))
        errG.backward()
        optimizerG.step()
        if it % 50 == 0:
            print(f"[{it}/{iters}] Loss_D: {(errD_real + errD_fake).item():.4f} Loss_G: {errG.item():.4f}")
        it += 1
        if it >= iters:
            break
netG.eval()
with torch.no_grad():
    fake = netG(fixed_noise)
real = dataset[:256]
for nm, im in (("real", real), ("fake", fake)):
    print(nm, f"mean {im.mean():.3f} peak {im.amax((1, 2, 3)).mean():.3f} corner {im[:, :, 0, 0].mean():.3f} per-pixel std {im.std(0).mean():.3f}")
