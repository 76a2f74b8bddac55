"""The pytest plugin: fixtures, and an option. Loading it imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from seismograd.testing import Healthy, assert_trains, pages

_WATCHES: pytest.StashKey[list[Healthy]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("seismograd", "trainings under watch")
    group.addoption("--seismograd-html", metavar="DIR", default=None, help="Keep the report pages of tests that fail.")


def pytest_configure(config: pytest.Config) -> None:
    wanted = config.getoption("--seismograd-html", default=None)
    if wanted:
        pages.folder = Path(wanted).absolute()


def pytest_unconfigure() -> None:
    pages.folder = None


@pytest.fixture
def seismograd_watch(request: pytest.FixtureRequest) -> Iterator[Callable[..., Healthy]]:
    """Opens a watch that fails the test at its end, as `assert_healthy` does: `seismograd_watch(model, optimizer)`."""
    opened: list[Healthy] = request.node.stash.setdefault(_WATCHES, [])

    def open_one(models: Any, optimizers: Any = None, **arguments: Any) -> Healthy:
        opened.append(Healthy(models, optimizers, **arguments))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def trains() -> Callable[..., Any]:
    """`assert_trains`, for tests that do not import it."""
    return assert_trains


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """What a fixture watched is judged while the test still runs, so that it fails and does not err afterwards."""
    try:
        result = yield
    except BaseException as error:
        for watch in item.stash.get(_WATCHES, []):
            if not watch.closed:
                watch.__exit__(type(error), error, error.__traceback__)
        raise
    for watch in item.stash.get(_WATCHES, []):
        if not watch.closed:
            failure = _failure_of(watch)
            if failure is not None:  # no line of the test's own is to blame
                pytest.fail(failure, pytrace=False)
    return result


def _failure_of(watch: Healthy) -> str | None:
    try:
        watch.check()
    except AssertionError as error:
        return str(error)
    return None
