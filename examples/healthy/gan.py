"""A GAN on a ring of points: two models, two optimizers, and losses that are not meant to fall."""

import torch
from torch import nn

torch.manual_seed(0)


def real_points(number):
    angle = 2 * torch.pi * torch.rand(number)
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(number, 2)


def network(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, outputs)
    )


generator, critic = network(8, 2), network(2, 1)
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=5e-4, betas=(0.5, 0.999))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=5e-4, betas=(0.5, 0.999))
loss_fn = nn.BCEWithLogitsLoss()
real, fake = torch.ones(128, 1), torch.zeros(128, 1)

for step in range(400):
    points = generator(torch.randn(128, 8))

    critic_loss = loss_fn(critic(real_points(128)), real) + loss_fn(critic(points.detach()), fake)
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()

    generator_loss = loss_fn(critic(points), real)
    generator_optimizer.zero_grad()
    generator_loss.backward()
    generator_optimizer.step()
    if step % 100 == 99:
        print(f"step {step:3}  critic {critic_loss.item():.4f}  generator {generator_loss.item():.4f}")
