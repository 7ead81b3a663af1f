"""Fixtures that run the command in this process or in another one."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from resource_objects.cli.main import main
from resource_objects.host.machine import MIB, Core, Disk, Machine, NUMACell, Pages, PCIDevice

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Result:
    """The status and the output of a run."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The output, by lines."""
        return self.out.splitlines()


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A home of this test's own, where the default ledger is."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("XDG_DATA_HOME", "RESOURCE_OBJECTS_DATABASE"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def default_ledger(home: pathlib.Path) -> pathlib.Path:
    """The file of the default ledger."""
    return home / ".local" / "share" / "resource_objects" / "ledger.db"


@pytest.fixture
def begun(default_ledger: pathlib.Path, sqlite_url: Callable[..., str]) -> None:
    """The default ledger is there, and empty: to make its tables takes longer than most tests."""
    default_ledger.parent.mkdir(parents=True)
    sqlite_url(default_ledger)


@pytest.fixture
def run(home: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run the command in this process."""

    def run_main(*argv: str) -> Result:
        capsys.readouterr()
        status = main(argv)
        return Result(status, *capsys.readouterr())

    return run_main


@pytest.fixture
def shell(home: pathlib.Path) -> Callable[..., Result]:
    """Run the command in a process of its own, every warning an error."""

    def run_process(*argv: str, **environ: str) -> Result:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "resource_objects", *argv],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
            capture_output=True,
            cwd=home,
            timeout=120,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run_process


@pytest.fixture
def machine() -> Machine:
    """A machine: 4 CPUs on 2 cores, 8 GiB of which 1 GiB in huge pages, two GPUs."""
    gpus = tuple(
        PCIDevice(f"0000:{bus}:00.0", "10de", "2330", "030200", numa_node=0, driver="nvidia")
        for bus in ("3b", "86")
    )
    network = PCIDevice("0000:01:00.0", "8086", "1572", "020000")
    pages = (Pages(4096, 1000), Pages(2 * MIB, 512, 500))
    return Machine(
        hostname="box",
        architecture="x86_64",
        cpus=(0, 1, 2, 3),
        cores=(Core(0, 0, (0, 2)), Core(0, 1, (1, 3))),
        memory_bytes=8192 * MIB,
        cells=(NUMACell(0, (0, 1, 2, 3), 8000 * MIB, pages, 0, (10, 21)), NUMACell(5, (), MIB)),
        huge_pages=pages[1:],
        disk=Disk("/", 100 * 1024 * MIB, 50 * 1024 * MIB),
        devices=(network, *gpus),
    )


@pytest.fixture
def on_machine(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Machine | None], None]:
    """Make commands in this process see a machine; call it with another one to change it."""

    def see(seen: Machine) -> None:
        monkeypatch.setattr("resource_objects.host.discovery.discover", lambda **options: seen)

    monkeypatch.setattr("resource_objects.host.pci_ids.PATHS", ())  # devices have no names
    see(machine)
    return see
