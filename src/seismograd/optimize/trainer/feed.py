"""`Feed`: the batches of a loader, epoch by epoch, which can be gone on with in the middle of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.utils.data import DataLoader

from seismograd.optimize.trainer.randomness import noted, restore


class Feed:
    """Hands out the batches of a loader, and knows how many of the epoch's were used.

    A loader with `state_dict` and `load_state_dict` is asked where it stands. Any other is begun again with all
    generators as they were when the epoch began, and what was used before is passed over: the order is then the same.
    """

    def __init__(self, loader: Any, own: Sequence[Any] = (), *, exact: bool = False) -> None:
        self.loader, self.own, self.exact = loader, own, exact
        self.used = 0
        """Batches of this epoch that were handed out."""
        self._began: Mapping[str, Any] | None = None
        """The generators when the epoch began."""
        self._rest: Iterator[Any] | None = None
        """What is still to come of an epoch that was gone on with."""

    def batches(self, epoch: int = 0) -> Iterator[Any]:
        """The batches of an epoch, or those of it that are still to come."""
        rest, self._rest = self._rest, None
        if rest is None:
            self.used, self._began = 0, noted(self.own) if self.exact else None
            rest = self._begun(epoch)
        for batch in rest:
            self.used += 1
            yield batch

    def state(self) -> dict[str, Any]:
        """Where it stands, as plain values."""
        state = {"used": self.used, "began": self._began if self.used else None, "loader": None}
        if _tells_its_state(self.loader):
            state |= {"began": None, "loader": self.loader.state_dict()}
        return state

    def go_on(self, state: Mapping[str, Any], epoch: int) -> None:
        """Goes to where it stood. The generators are left as they happen to be: set them afterwards."""
        self.used, self._began = state["used"], state["began"]
        if state["loader"] is not None and _tells_its_state(self.loader):
            self.loader.load_state_dict(state["loader"])
            self._rest = iter(self.loader) if self.used else None
        elif self.used and self._began is None:
            raise ValueError("the loader told its state when the run was saved, and has no load_state_dict any more")
        elif self.used and self._began is not None:
            restore(self._began, self.own)
            self._rest = self._begun(epoch)
            for passed in range(self.used):
                if next(self._rest, _NOTHING) is _NOTHING:
                    raise ValueError(
                        f"the run was saved after {self.used} batches of epoch {epoch + 1}, and the loader has only"
                        f" {passed}: it has to be the one that the run was begun with"
                    )

    def _begun(self, epoch: int) -> Iterator[Any]:
        loader = self.loader
        for part in (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
            set_epoch = getattr(part, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(epoch)
        if self.exact and isinstance(loader, DataLoader) and loader.persistent_workers:
            loader._iterator = None  # workers that live on have random states which nobody can save: new ones do not
        return iter(loader)


def _tells_its_state(loader: Any) -> bool:
    return callable(getattr(loader, "state_dict", None)) and callable(getattr(loader, "load_state_dict", None))


_NOTHING = object()
