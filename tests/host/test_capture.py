"""A captured machine of this checkout; its capture is read as the machine itself."""

from __future__ import annotations

import dataclasses
import tarfile
from pathlib import Path

from resource_objects.host.linux import read_machine
from resource_objects.host.machine import Machine
from tools.capture import capture

#: A virtual machine of two CPUs, captured by ``tools/capture.py``.
CAPTURED = Path(__file__).parent / "captured_vm.tar.gz"


def unpacked(file: Path, folder: Path) -> Machine:
    with tarfile.open(file) as tar:
        tar.extractall(folder, filter="data")
    return read_machine(folder)


def test_a_captured_machine_is_read(tmp_path: Path) -> None:
    machine = unpacked(CAPTURED, tmp_path)
    assert (machine.hostname, machine.architecture) == ("vm", "x86_64")
    assert (len(machine.cpus), len(machine.cells), machine.packages) == (2, 1, 1)
    assert machine.memory_bytes == 25276502016
    assert [device.address for device in machine.devices][:2] == ["0000:00:00.0", "0000:00:01.0"]
    assert len(machine.devices) == 6 and machine.disk is None


def test_a_capture_of_a_capture_is_the_same(tmp_path: Path) -> None:
    machine = unpacked(CAPTURED, tmp_path / "first")
    capture(str(tmp_path / "first"), str(tmp_path / "again.tar.gz"))
    assert unpacked(tmp_path / "again.tar.gz", tmp_path / "second") == machine


def test_a_generated_machine_is_captured_whole(tree: object, tmp_path: Path) -> None:
    file = tmp_path.parent / f"{tmp_path.name}.tar.gz"
    capture(str(tmp_path), str(file))
    stored = unpacked(file, tmp_path / "unpacked")
    assert stored == dataclasses.replace(read_machine(tmp_path), disk=stored.disk)
