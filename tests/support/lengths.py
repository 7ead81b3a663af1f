"""How much is tried: few cases that are always the same, or many new ones.

The fast command, ``pytest -n auto``, tries one case in ten, the same ones every time, so that
it is as green for a newcomer as it was for who wrote the change. The long one, ``pytest -n
auto --long``, runs what the fast one leaves out and many more cases, new ones each time; it prints
the seed that repeats them. With a seed, files are run in an order of it, and ``--one-in N`` runs
one test in N, which the seed draws. What a test is in:

* every test is in the fast command, unless it is marked ``long``: then it is in the long one alone;
* tests of Hypothesis are in both, and those marked ``drawn``, which run a state machine;
* a test that SQLite passes too is in the fast command on PostgreSQL or on MariaDB, in turn, if it
  holds a law (``@pytest.mark.law``); the long one runs it on the other, and there all others;
* the conformance kit of a server is in the fast command with all tests that hold a law;
* a test beside a peer is run whenever peers are named, one that is marked ``long`` by ``--long``.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Collection, Iterable
from typing import Any

import hypothesis
import pytest

from tests.databases import KINDS

#: Cases of a test that says nothing else.
_FAST, _LONG = 10, 100
#: under which a worker finds the seed that was drawn
_SEED = "hypothesis_seed"
_SERVERS = ("postgresql", "mysql")

hypothesis.settings.register_profile(
    "fast", deadline=None, derandomize=True, print_blob=True, max_examples=_FAST
)
hypothesis.settings.register_profile("long", deadline=None, print_blob=True, max_examples=_LONG)
hypothesis.settings.load_profile("fast")


def examples(count: int) -> int:
    """Return how many cases to try: ``count`` in the long command, a tenth in the fast one."""
    return max(1, count * hypothesis.settings().max_examples // _LONG)


def some(values: Iterable[Any], fast: int = 1) -> list[Any]:
    """Return the parameters of a test, of which the fast command tries the first ones alone."""
    return [value if number < fast else _long(value) for number, value in enumerate(values)]


def _long(value: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.long)


# --- as a plug-in ---


def configure(config: pytest.Config) -> None:
    """Declare the markers; choose the profile, and the seed of a long run."""
    config.addinivalue_line("markers", "long: in the long command alone")
    config.addinivalue_line("markers", "drawn: tries drawn cases, many more in the long command")
    if not config.getoption("--long"):
        return
    hypothesis.settings.load_profile("long")
    if config.getoption("--hypothesis-seed") is None:
        drawn = getattr(config, "workerinput", {}).get(_SEED)
        config.option.hypothesis_seed = drawn or str(random.SystemRandom().getrandbits(32))


def share(config: pytest.Config, workerinput: dict[str, Any]) -> None:
    """Give a worker of pytest-xdist the seed that was drawn: it is given the command line alone."""
    workerinput[_SEED] = config.getoption("--hypothesis-seed")


def header(config: pytest.Config) -> str:
    """Return what to say of the length of a run."""
    if config.getoption("--long"):
        seed = config.getoption("--hypothesis-seed")
        return f"long tests and new cases, again with: --long --hypothesis-seed={seed}"
    if config.getoption("--hypothesis-seed") is not None:
        return "fast tests; the others: --long"
    return "fast tests and the same cases every time; the others: --long"


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of this command."""
    embedded = {_test(item) for item in items if _kind(item) == "sqlite"}
    wanted: list[pytest.Item] = []
    for item in items:
        long = is_long(item, embedded)
        is_wanted = long or _draws(item) if config.getoption("--long") else not long
        if is_wanted:
            wanted.append(item)
    one_in = config.getoption("--one-in")
    if one_in > 1:
        seed = config.getoption("--hypothesis-seed")
        wanted = [
            item for item in wanted if zlib.crc32(f"{seed} {_test(item)}".encode()) % one_in == 0
        ]
    _keep(config, items, wanted)


def select_of_peers(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked ``long`` of the tests beside peers, which ``--long`` runs too."""
    if not config.getoption("--long"):
        _keep(config, items, [one for one in items if one.get_closest_marker("long") is None])


def _keep(config: pytest.Config, items: list[pytest.Item], wanted: list[pytest.Item]) -> None:
    kept = {id(item) for item in wanted}
    left_out = [item for item in items if id(item) not in kept]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = wanted


def shuffle(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files into an order of the seed, where one is given: none needs another before it."""
    seed = config.getoption("--hypothesis-seed")
    if seed is None:
        return
    files = list(dict.fromkeys(item.path for item in items))
    random.Random(str(seed)).shuffle(files)
    place = {path: number for number, path in enumerate(files)}
    items.sort(key=lambda item: place[item.path])


def is_long(item: pytest.Item, embedded: Collection[str]) -> bool:
    """Return whether a test is in the long command alone.

    :param embedded: the tests that are also run on SQLite
    """
    if item.get_closest_marker("long") is not None:
        return True
    holds_law = item.get_closest_marker("law") is not None
    of_kit = getattr(getattr(item, "cls", None), "backend_name", None)
    if of_kit in _SERVERS:
        return not (holds_law and of_kit == _in_turn(item.name))
    kind = _kind(item)
    if kind not in _SERVERS or _test(item) not in embedded:
        return False
    return not (holds_law and kind == _in_turn(item.nodeid.replace(kind, "")))


def _in_turn(name: str) -> str:
    """Return the server on which the fast command runs a test, of those that are run on each.

    :param name: of the test; runs of it with other parameters may be on the other one
    """
    return _SERVERS[zlib.crc32(name.encode()) % len(_SERVERS)]


def _draws(item: pytest.Item) -> bool:
    test = getattr(item, "obj", None)
    return bool(getattr(test, "is_hypothesis_test", False) or item.get_closest_marker("drawn"))


def _kind(item: pytest.Item) -> str | None:
    """Return the kind of database that a test is run on, where it is run on several."""
    given = getattr(getattr(item, "callspec", None), "params", {}).values()
    return next((one for one in given if isinstance(one, str) and one in KINDS), None)


def _test(item: pytest.Item) -> str:
    """Return what runs of one test with other parameters have in common."""
    return item.nodeid.partition("[")[0]
