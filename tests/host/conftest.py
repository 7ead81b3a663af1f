"""Shared by the tests of hosts: generated trees and captured machines."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import pathlib
import sys
import tarfile
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

import resource_objects as ro
from resource_objects.host.linux import read_machine
from resource_objects.host.machine import Machine
from tests.host.views import HOST

_HERE = pathlib.Path(__file__).parent
_DATA = _HERE.parents[1].parent / "shared" / "data"


def _load(name: str) -> ModuleType:
    """Import a helper next to this file: test folders are no packages and not on the path."""
    spec = importlib.util.spec_from_file_location(
        f"resource_objects_tests_host_{name}", _HERE / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


_TREES = _load("trees")


@pytest.fixture(scope="session")
def trees() -> ModuleType:
    """The generator of machines, ``tests/host/trees.py``."""
    return _TREES


@pytest.fixture
def tree(tmp_path, trees):
    """A small machine with everything, to be damaged."""
    shape = trees.Shape(
        packages=2,
        cores_per_node=2,
        threads=2,
        node_ids=(1, 0, 7),
        memory_kib=(1 << 20, 1 << 20, 1 << 19),
        huge=({2048: 512, 1048576: 2}, {2048: 0, 1048576: 0}, {}),
        initiators=((1,),),
        functions=(
            trees.Function(bus=0x3B, node=1, vendor="10de", product="2330", class_id="030200"),
            trees.Function(bus=0x60, node=0, totalvfs=64, vfs=2),
        ),
    )
    trees.write(tmp_path, shape)
    return shape


def _data(path: str) -> pathlib.Path:
    file = _DATA / path
    if not file.exists():
        pytest.skip(f"captured machines are not in this checkout: no {path} below {_DATA}")
    return file


@pytest.fixture(scope="session")
def hwloc_counts() -> dict:
    """hwloc's own counts of its captured machines."""
    return json.loads(_data("hwloc-linux/expected-topology.json").read_text("utf-8"))


def _unpack(archive: pathlib.Path, target: pathlib.Path) -> None:
    """Unpack thousands of tiny files, without their owners, times and modes: twice as fast."""
    created: set[str] = set()
    with tarfile.open(archive) as tar:
        for member in tar:
            path = os.path.join(target, member.name)
            if os.path.dirname(path) not in created:  # an archive may list no folders
                os.makedirs(os.path.dirname(path), exist_ok=True)
                created.add(os.path.dirname(path))
            if member.isdir():
                os.makedirs(path, exist_ok=True)
            elif member.issym():
                os.symlink(member.linkname, path)
            elif member.isfile():
                with open(path, "wb") as file:
                    file.write(tar.extractfile(member).read())
            else:
                raise ValueError(f"{archive}: {member.name} is no file, directory or link")


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], pathlib.Path]:
    """Return a function: the name of a captured machine to the root of its unpacked files."""

    @functools.cache
    def unpacked(archive: pathlib.Path, top: bool) -> pathlib.Path:
        target = tmp_path_factory.mktemp("machine")
        _unpack(archive, target)
        return next(target.iterdir()) if top else target

    def root(name: str) -> pathlib.Path:
        if name == "captured_vm":  # by this project's own command, so in every checkout
            return unpacked(_HERE / "captured_vm.tar.gz", False)
        if name.startswith("linux-amd64-"):
            return unpacked(_data(f"ghw-snapshots/{name}.tar.gz"), False)
        return unpacked(_data(f"hwloc-linux/{name}.tar.bz2"), True)

    return root


@pytest.fixture(scope="session")
def captured_machine(captured: Callable[[str], pathlib.Path]) -> Callable[..., Machine]:
    """A function that returns the machine of a captured name, read once."""

    @functools.cache
    def machine(name: str, within_cgroup: bool = False) -> Machine:
        return read_machine(captured(name), within_cgroup=within_cgroup)

    return machine


@pytest.fixture(params=["memory", "sqlite"])
def connect(request, sqlite_url) -> Iterator[Callable[[], ro.Ledger]]:
    """A function that opens one ledger, for a database each time anew, as another process would."""
    opened = [ro.connect("memory://")] if request.param == "memory" else []
    url = None if opened else sqlite_url("lab.db")

    def connect() -> ro.Ledger:
        if url is not None:
            opened.append(ro.connect(url))
        return opened[-1]

    yield connect
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(connect) -> ro.Ledger:
    """A ledger with host0, which has a child, a trait, and a class no compute node knows."""
    created = connect()
    host = ro.Provider("host0", HOST, traits=["CUSTOM_SSD"])
    host.add("host0/gpu0", "PGPU=1", traits=["CUSTOM_H100"])
    created.sync(host)
    return created
