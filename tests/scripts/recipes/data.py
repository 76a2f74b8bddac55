import torch


def batches(n):
    generator = torch.Generator().manual_seed(0)
    for _ in range(n):
        x = torch.randn(8, 3, generator=generator)
        yield x, x.sum(1, keepdim=True)
