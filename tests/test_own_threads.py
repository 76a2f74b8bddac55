"""A garbage collection in a thread of ours is none of the training's."""

import gc
import threading

import pytest

from seismograd.own_threads import in_one, ours
from seismograd.probes.timing import Collector


@pytest.mark.parametrize(("whose", "counted"), [(ours, False), (lambda work: work, True)], ids=["ours", "theirs"])
def test_whose_collections_count(whose, counted):
    collector = Collector(lambda: False)
    try:
        thread = threading.Thread(target=whose(gc.collect))
        thread.start()
        thread.join()
        assert (collector.seconds > 0.0) is counted
    finally:
        collector.close()


def test_it_is_forgotten_when_it_ends():
    told = []

    def fails():
        told.append(in_one())
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        ours(fails)()
    assert told == [True]
    assert not in_one()
