"""Repeated blocks are found by structure, whatever they are called."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seismograd.optimize.blocks import blocks_of
from seismograd.optimize.models import optimized


def names(model: nn.Module) -> list[str]:
    return [name for block in blocks_of(model) for name in block.names]


def feed_forward(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU())


class Stage(nn.Module):
    """A block of a residual network: its first of a stage has one layer more."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)
        self.norm = nn.BatchNorm2d(outside)
        self.down = nn.Sequential(nn.Conv2d(inside, outside, 1)) if inside != outside else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(F.relu(self.norm(self.a(x))))
        return F.relu(y + (x if self.down is None else self.down(x)))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.layer1 = nn.Sequential(Stage(4, 4), Stage(4, 4))
        self.layer2 = nn.Sequential(Stage(4, 8), Stage(8, 8))
        self.layer3 = nn.Sequential(Stage(8, 16), Stage(16, 16))
        self.fc = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer3(self.layer2(self.layer1(self.stem(x)))).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm, self.mlp = Attention(), nn.LayerNorm(8), feed_forward()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor]:
        return (x + self.mlp(self.norm(x + self.attention(x))),)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layer:
            x = layer(x, mask=None)[0]
        return x


class Bert(nn.Module):
    """As Hugging Face's models are put together: a list in a module in the model, tuples as outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings, self.encoder, self.pooler = nn.Linear(8, 8), Encoder(), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.pooler(self.encoder(self.embeddings(x)))


class Anonymous(nn.Module):
    """Blocks under names of their own, each with its own width."""

    def __init__(self) -> None:
        super().__init__()
        for at, name in enumerate(("zig", "zag", "zog")):
            self.add_module(name, nn.Sequential(nn.Linear(8 + at, 16), nn.Tanh(), nn.Linear(16, 9 + at), nn.Tanh()))

    def forward(self, x: Tensor) -> Tensor:
        return self.zog(self.zag(self.zig(x)))


@pytest.mark.parametrize(
    ("model", "expected", "shape"),
    [
        (ResNet(), [f"layer{at}.{inner}" for at in (1, 2, 3) for inner in (0, 1)], (2, 3, 8, 8)),
        (Bert(), [f"encoder.layer.{at}" for at in range(4)], (2, 5, 8)),
        (Anonymous(), ["zig", "zag", "zog"], (4, 8)),
        (nn.Sequential(*[feed_forward() for _ in range(8)]), [str(at) for at in range(8)], (4, 8)),
    ],
    ids=["attributes", "list-in-a-module", "other-names", "nested-sequential"],
)
def test_blocks_are_found_and_gradients_stay(model: nn.Module, expected: list[str], shape: tuple[int, ...]) -> None:
    assert sorted(names(model)) == sorted(expected)
    lean, x = optimized(copy.deepcopy(model), "memory_efficient"), torch.randn(shape)
    for each in (model, lean):
        each(x).square().sum().backward()
    assert all(
        torch.equal(one.grad, other.grad) for one, other in zip(model.parameters(), lean.parameters(), strict=True)
    )


def test_encoder_and_decoder_are_both_found() -> None:
    found = names(nn.Transformer(8, 2, 3, 3, 16, batch_first=True))
    assert sorted(found) == [f"{side}.layers.{at}" for side in ("decoder", "encoder") for at in range(3)]


def test_of_nested_repeats_the_level_that_saves_most_is_taken() -> None:
    few_long = nn.Sequential(*[nn.Sequential(*[feed_forward() for _ in range(12)]) for _ in range(2)])
    assert len(names(few_long)) == 24, "two blocks of 48 layers would be there whole again"
    many_short = nn.Sequential(*[nn.Sequential(feed_forward(), feed_forward()) for _ in range(12)])
    assert names(many_short) == [str(at) for at in range(12)]


def test_a_long_sequential_is_cut_into_segments() -> None:
    torch.manual_seed(0)
    flat = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(8, 8), nn.BatchNorm1d(8))])
    assert names(flat) == ["0-3", "4-7", "8-11", "12-15"]
    lean, x = optimized(copy.deepcopy(flat), "memory_efficient"), torch.randn(6, 8)
    for each in (flat, lean):
        each(x).square().sum().backward()
    assert all(
        torch.equal(one.grad, other.grad) for one, other in zip(flat.parameters(), lean.parameters(), strict=True)
    )
    assert all(map(torch.equal, flat.buffers(), lean.buffers()))
    inner = lean.original
    inner.append(nn.Linear(8, 2))
    assert lean(x).shape == (6, 2), "a layer that came later is not forgotten"


def test_where_nothing_repeats_it_is_said() -> None:
    lean = optimized(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), "memory_efficient")
    told = lean.optimization
    assert told.checkpointed == ()
    assert "no blocks of this model repeat" in told.notes[0]
    assert lean(torch.randn(3, 8)).requires_grad
