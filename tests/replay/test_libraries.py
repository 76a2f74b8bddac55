"""An op that an installed package ran is told with that package's own line, in a virtual environment, too."""

from __future__ import annotations

import sys
from types import FunctionType

import pytest
import safetensors.torch
import torch

from seismograd.places import Spot, is_users, nearest


def test_the_line_of_an_installed_package_is_known() -> None:
    seen = []

    class Asked(dict[str, torch.Tensor]):
        def items(self):  # type: ignore[no-untyped-def]
            seen.append(nearest(sys._getframe(1))[1])
            return super().items()

    safetensors.torch.save(Asked(x=torch.zeros(1)))
    assert seen
    assert "safetensors" in seen[0].file


@pytest.mark.parametrize(
    "folder",
    [
        "/home/me/.local/lib/python3.11/site-packages",  # pip install --user
        "/usr/lib/python3/dist-packages",  # under a venv with --system-site-packages
        "/opt/conda/envs/other/lib/python3.12/site-packages",  # on PYTHONPATH
    ],
)
def test_packages_of_another_place_are_not_the_users_code(folder: str) -> None:
    assert not is_users(f"{folder}/torch/_dynamo/eval_frame.py")
    assert not is_users(f"{folder}/einops/layers/torch.py")
    assert is_users("/home/me/site-packages.py")
    assert is_users("/home/me/project/train.py")


def _asks() -> tuple[Spot | None, Spot | None]:
    return nearest(sys._getframe(0))


def test_torch_of_another_place_is_no_package_to_be_named() -> None:
    """It is what everything goes through: the line wanted is that of whoever called it."""
    named = {}
    for package in ("torch", "einops"):
        code = _asks.__code__.replace(co_filename=f"/usr/lib/python3/dist-packages/{package}/ops.py")
        user, library = FunctionType(code, globals())()
        assert user is not None
        assert user.file.endswith("test_libraries.py")
        named[package] = library
    assert named["torch"] is None
    assert named["einops"] is not None
