"""An op that an installed package ran is told with that package's own line, in a virtual environment, too."""

from __future__ import annotations

import sys

import safetensors.torch
import torch

from seismograd.places import nearest


def test_the_line_of_an_installed_package_is_known() -> None:
    seen = []

    class Asked(dict[str, torch.Tensor]):
        def items(self):  # type: ignore[no-untyped-def]
            seen.append(nearest(sys._getframe(1))[1])
            return super().items()

    safetensors.torch.save(Asked(x=torch.zeros(1)))
    assert seen
    assert "safetensors" in seen[0].file
