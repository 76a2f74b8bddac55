"""`duplicate-randomness`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from seismograd.detectors.wording import found
from seismograd.records import Finding, Reading, Severity, Where


@dataclass(frozen=True)
class DuplicateRandomness:
    """The workers of a loader draw the same random numbers, or bring the same samples.

    Why it matters
    --------------
    Each worker is a copy of the process. What it copies, a generator in its first state among other things, is the
    same in all of them: augmentation repeats itself from worker to worker and from epoch to epoch, and an
    iterable dataset that every worker reads from its beginning is seen as often as there are workers.

    How it is judged
    ----------------
    Only where a loader has two or more workers.

    - Batches: `rounds` times in a row all workers brought the very same batch, each time another one.
    - Generators: the dataset, or a transform that it holds, draws from a generator that was made before the workers
      were (an attribute, or a global), nothing in its methods seeds one or asks which worker it is, and the loader has
      no `worker_init_fn`.
    - `worker_init_fn` gives every worker the same seed, as it does not look at its argument, and the dataset draws
      random numbers.

    NumPy's and Python's global generators are fine: torch seeds them for each worker.

    What to try
    -----------
    Seed in `worker_init_fn`, from `torch.initial_seed()`, which differs for each worker and epoch; or make the
    generator of each sample from its index. Share an iterable dataset's samples out with `get_worker_info()`.

    An example
    ----------
    A dataset with a generator of its own:

        self.rng = np.random.default_rng(0)                     # in __init__: every worker has a copy

        def worker_init_fn(worker_id):                          # give each another
            dataset = torch.utils.data.get_worker_info().dataset
            dataset.rng = np.random.default_rng(torch.initial_seed())
    """

    id: ClassVar[str] = "duplicate-randomness"
    needs: ClassVar[tuple[str, ...]] = ("facts/data",)
    follows: ClassVar[tuple[str, ...]] = ()

    rounds: int = 3

    def start(self) -> _Checker:
        return _Checker(self)


class _Checker:
    __slots__ = ("_detector",)

    def __init__(self, detector: DuplicateRandomness) -> None:
        self._detector = detector

    def check(self, reading: Reading) -> Finding | None:
        workers = reading.facts["data"].get("workers")
        if not workers:
            return None
        if "same" in workers and workers["same"]["rounds"] >= self._detector.rounds:
            return self._same(reading, workers["same"])
        if "generator" in workers:
            return self._generator(reading, workers["generator"])
        if "seeded" in workers:
            return self._seeded(reading, workers["seeded"])
        return None

    def _same(self, reading: Reading, same: Mapping[str, Any]) -> Finding:
        message = (
            f"All {same['workers']} workers of the loader bring the same samples: {same['rounds']} times in a row each"
            f" batch came {same['workers']} times."
        )
        if same["iterable"]:
            advice = [
                f"Share the samples of `{same['dataset']}` out: in `__iter__`, `info = get_worker_info()`, then"
                " `islice(samples, info.id, None, info.num_workers)`.",
                "Or use one worker, `num_workers=1`.",
            ]
        else:
            advice = [
                "Seed each worker's generator anew, in `worker_init_fn`, from `torch.initial_seed()`.",
                "Or make the generator of each sample from its index, in `__getitem__`.",
            ]
        evidence = {"rounds": same["rounds"], "limit": self._detector.rounds, "workers": same["workers"]}
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice)

    def _generator(self, reading: Reading, made: Mapping[str, Any]) -> Finding:
        name, owner = made["name"], made["owner"]
        message = (
            f"Every worker has a copy of the generator `{name}` of `{owner}` ({made['kind']}): all {made['workers']} of"
            " them draw the same random numbers"
        )
        message += ", and the same again in each epoch." if made["again"] else "."
        advice = [
            "Give each worker another: in `worker_init_fn`, `get_worker_info().dataset.rng ="
            " np.random.default_rng(torch.initial_seed())`.",
            "Or draw from torch's own generator (`torch.rand(())`), which differs in every worker and epoch.",
        ]
        evidence = {key: made[key] for key in ("owner", "name", "kind", "workers")}
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice)

    def _seeded(self, reading: Reading, seeded: Mapping[str, Any]) -> Finding:
        message = (
            f"`{seeded['function']}` gives each of the {seeded['workers']} workers the same seed: all of them draw the"
            " same random numbers, and the same again in each epoch."
        )
        advice = [
            "Seed from what differs: `np.random.seed(torch.initial_seed() % 2**32)` in `worker_init_fn`.",
            "Or leave `worker_init_fn` out: torch seeds its own, NumPy's and Python's generators for each worker.",
        ]
        where = Where(phase="input", file=seeded["file"], line=seeded["line"])
        evidence = {"function": seeded["function"], "workers": seeded["workers"]}
        return found(self._detector, reading, Severity.WARNING, message, evidence, advice=advice, where=where)
