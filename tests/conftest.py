"""What every test shares: how much is tried, scratch databases, and which tests are peers'.

Lengths: a fast command and a long one, ``--long``, see ``support/lengths.py``. No case has a
deadline: how long one takes says more about the machine than about the code.

Databases: the fixtures ``database_url`` and ``prepared_database``, see ``databases.py``; in memory
too: ``everywhere`` and ``everywhere_url``.

Peers: ``peers/<name>`` compares with another system in the same process and needs it installed.
Such a directory is collected only when it is named on the command line, as ``tox -e <name>`` does
after installing it; then a missing peer is an error.

Laws: ``@pytest.mark.law`` and ``--laws-table`` come from :mod:`resource_objects.testing.laws`.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import shutil
import sys
import types
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule

pytest.register_assert_rewrite("tests.support")

import resource_objects as ro  # noqa: E402
from resource_objects import exceptions  # noqa: E402
from resource_objects.backends.sql import backend as sql_backend  # noqa: E402
from resource_objects.backends.sql import feed  # noqa: E402
from resource_objects.backends.sql.backend import SQLBackend  # noqa: E402
from tests import databases  # noqa: E402
from tests.plugin_site import plugin_site, run_with_plugins  # noqa: E402, F401  # fixtures
from tests.support import lengths  # noqa: E402

pytest_plugins = ["resource_objects.testing.laws", "pytester"]

#: Files of tests go to memory where there is plenty: each commit waits for the disk else.
_MEMORY, _PLENTY = Path("/dev/shm"), 2**30

_PEERS = Path(__file__).resolve().parent / "peers"


def _peers_are_named(config: pytest.Config) -> bool:
    base = config.invocation_params.dir
    return any((base / arg.split("::")[0]).resolve().is_relative_to(_PEERS) for arg in config.args)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the peers out unless they are named."""
    return True if collection_path == _PEERS and not _peers_are_named(config) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--long`` and ``--one-in``."""
    parser.addoption("--long", action="store_true", help="run what the fast tests leave out")
    parser.addoption(
        "--one-in", type=int, default=1, metavar="N", help="one test in N, by the seed"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose how much is tried, and where files go (pytest's ``--basetemp`` says another place)."""
    lengths.configure(config)
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _PLENTY:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Generator[None, int, int]:
    """Let ``-n auto`` start half as many more: tests wait for servers, disks, processes and leases.

    Not for the long tests, of which storms keep every processor busy.
    """
    found = yield
    if config.getoption("--long") or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return found
    return found + max(1, found // 2)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let all workers of pytest-xdist try the same cases, in the same order."""
    lengths.share(node.config, node.workerinput)


def _import_in_turn(config: pytest.Config) -> None:
    """Import the tests, in each worker of pytest-xdist from another one on.

    In a new checkout nothing is compiled, which takes longer than all else of collecting: so each
    compiles what the others come to later. What cannot be imported is told when it is collected.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    here = Path(__file__).parent
    files = [path for path in sorted(here.rglob("test_*.py")) if _PEERS not in path.parents]
    start = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in files[start:] + files[:start]:
        with contextlib.suppress(Exception):
            importlib.import_module(".".join(path.relative_to(here.parent).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Look for no examples in a file that has none: to look takes a tenth of collecting."""
    found = yield
    examples = [one for one in found if isinstance(one, DoctestModule)]
    if not examples or ">>>" in file_path.read_text(encoding="utf-8"):
        return found
    return [one for one in found if one not in examples]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Look for no garbage while tests are collected, and afterwards not in what was collected.

    Nearly all of it stays: to go through it again and again took half of the time of collecting.
    Tests make much at once that stays until they end, such as trees of a whole package: to look as
    often as is usual takes a twentieth of the time of all, and two thirds of that of such ones.
    """
    gc.disable()
    try:
        _import_in_turn(session.config)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Expect a test to fail where its class says so, by ``has_to_fail``: else it is told."""
    says = getattr(getattr(item, "cls", None), "has_to_fail", None)
    why, strict = (None, True) if says is None else says(item)
    if why is not None:
        # the last one where what was raised in a thread is taken for what it returned
        never = exceptions.ResourceObjectsError, AssertionError, pytest.fail.Exception
        failures = (*never, AttributeError) if strict else Exception
        item.add_marker(pytest.mark.xfail(reason=why, strict=strict, raises=failures))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the other command; beside peers, what is long."""
    if _peers_are_named(config):
        lengths.select_of_peers(config, items)
    else:
        lengths.select(config, items)
    lengths.shuffle(config, items)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is left out, and who runs it."""
    if _peers_are_named(config):
        return [lengths.header(config)]
    names = sorted(path.name for path in _PEERS.iterdir() if path.is_dir())
    peers = f"not collected: tests/peers (run by tox -e {','.join(names)})"
    return [lengths.header(config), peers]


@pytest.fixture
def nobody_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no write forget what is old: one in many does, by lot, and sends more statements."""
    monkeypatch.setattr(feed, "EVERY", sys.maxsize)
    # the last lot: of the first ones as many forget as a write has orders
    lots = types.SimpleNamespace(randbits=lambda bits: 2**bits - 1)
    monkeypatch.setattr(sql_backend, "secrets", lots)


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[databases.Scratch]:
    """The maker of scratch databases of this test process."""
    made = databases.Scratch(tmp_path_factory.mktemp("databases"))
    yield made
    made.close()


@pytest.fixture(params=databases.KINDS)
def database_kind(request: pytest.FixtureRequest) -> str:
    """Run the test on each kind of database that can be reached."""
    kind: str = request.param
    if kind != "sqlite":
        require_server(kind)
    return kind


def require_server(kind: str) -> None:
    """Skip the test, or fail it where databases are required, if there is no such server."""
    try:
        databases.find_server(kind)
    except databases.Unreachable as error:
        if databases.required():
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(params=("memory", *databases.KINDS))
def everywhere_kind(request: pytest.FixtureRequest) -> str:
    """Run the test in memory, and on each kind of database that can be reached."""
    kind: str = request.param
    if kind not in ("memory", "sqlite"):
        require_server(kind)
    return kind


@pytest.fixture
def everywhere_url(
    everywhere_kind: str, scratch: databases.Scratch, sqlite_url: Callable[[str], str]
) -> Iterator[str]:
    """A ledger in memory and on every kind of database."""
    if everywhere_kind == "memory":
        yield "memory://"
    elif everywhere_kind == "sqlite":
        yield sqlite_url("everywhere.db")
    else:
        with scratch.prepared(everywhere_kind, SQLBackend.upgrade_database) as made:
            yield made


@pytest.fixture
def everywhere(everywhere_url: str) -> Iterator[ro.Ledger]:
    with ro.connect(everywhere_url) as opened:
        yield opened


@pytest.fixture
def everywhere_with(
    everywhere_kind: str, everywhere_url: str, sqlite_url: Callable[..., str]
) -> Iterator[Callable[[Callable[[ro.Ledger], object]], ro.Ledger]]:
    """A function ``build -> ledger`` of ``everywhere_url``, as ``build(ledger)`` leaves it.

    On SQLite that is called once in a test process, see ``sqlite_url``.
    """
    with contextlib.ExitStack() as opened:

        def made(build: Callable[[ro.Ledger], object]) -> ro.Ledger:
            if everywhere_kind == "sqlite":
                sqlite_url("everywhere.db", build)
            ledger = opened.enter_context(ro.connect(everywhere_url))
            if everywhere_kind != "sqlite":
                build(ledger)
            return ledger

        yield made


@pytest.fixture(scope="session")
def ledger_file(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Callable[[ro.Ledger], object] | None], Path]:
    """A function ``build -> path`` of the file of a ledger, to be copied; None is an empty one."""

    @functools.cache
    def made(build: Callable[[ro.Ledger], object] | None) -> Path:
        path = tmp_path_factory.mktemp("template") / "ledger.db"
        if build is None:
            SQLBackend.upgrade_database(f"sqlite:///{path}")
        else:
            shutil.copy(made(None), path)
            with ro.connect(f"sqlite:///{path}") as ledger:
                build(ledger)
        assert [found.name for found in path.parent.iterdir()] == ["ledger.db"]
        return path

    return made


@pytest.fixture(scope="session")
def empty_ledger(ledger_file: Callable[[None], Path]) -> Path:
    """The file of an empty ledger, to be copied."""
    return ledger_file(None)


@pytest.fixture
def sqlite_url(
    ledger_file: Callable[[Callable[[ro.Ledger], object] | None], Path], tmp_path: Path
) -> Callable[..., str]:
    """A function ``name, build=None -> URL`` of a ledger in a file of that name.

    It is empty, or as ``build(ledger)`` leaves one, which is called once in a test process: a
    function of a module, for it is the key. A copy costs half of what making the tables does, and
    waits a third as long.
    """

    def copy(name: str | Path, build: Callable[[ro.Ledger], object] | None = None) -> str:
        return f"sqlite:///{shutil.copy(ledger_file(build), tmp_path / name)}"

    return copy


@pytest.fixture
def database_url(database_kind: str, scratch: databases.Scratch) -> Iterator[str]:
    """The URL of an empty database of this test's own."""
    url = scratch.create(database_kind)
    yield url
    scratch.drop(url)


@pytest.fixture
def prepared_database(
    database_kind: str, scratch: databases.Scratch
) -> Iterator[Callable[[databases.Prepare], str]]:
    """A function ``prepare -> URL`` of a database as ``prepare(url)`` leaves it."""
    with contextlib.ExitStack() as lent:
        yield lambda prepare: lent.enter_context(scratch.prepared(database_kind, prepare))
