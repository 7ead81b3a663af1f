"""Capture a machine: copy the files of /proc and /sys that the library reads of it.

::

    .venv/bin/python tools/capture.py machine.tar.gz

What is captured is read by ``resource-objects host show --root DIR`` after unpacking. It is small,
because nothing is copied that discovery does not ask for. It holds the name of the host, and the
addresses and ids of its PCI devices.
"""

from __future__ import annotations

import argparse
import io
import os
import tarfile
from unittest import mock

from resource_objects.host import linux
from resource_objects.host.sysfs import Tree


class Recorder(Tree):
    """A machine that remembers what was asked of it."""

    files: dict[str, str]
    folders: set[str]

    def __init__(self, root: str, *, strict: bool) -> None:
        super().__init__(root, strict=strict)
        self.files, self.folders = {}, set()

    def _read(self, path: str) -> str:
        text = super()._read(path)
        self.files[self.resolved(path)] = text
        return text

    def names(self, path: str) -> list[str] | None:
        found = super().names(path)
        if found is not None:
            where = self.resolved(path)
            self.folders |= {f"{where}/{name}" for name in found}
        return found

    def link(self, path: str) -> str | None:
        found = super().link(path)
        if found is not None:
            head, _, name = path.rpartition("/")
            where = f"{self.resolved(head)}/{name}"
            self._links[where] = os.readlink(self._prefix + where)
        return found

    @property
    def links(self) -> dict[str, str]:
        """The links that were followed or looked at, and where they point."""
        return {path: to for path, to in self._links.items() if to is not None}


def capture(root: str, file: str) -> int:
    """Write what discovery reads of a machine to a tar file; return how many entries it has."""
    machines: list[Recorder] = []

    def recorder(asked: str, *, strict: bool) -> Recorder:
        machines.append(Recorder(asked, strict=strict))
        return machines[-1]

    with mock.patch.object(linux, "Tree", recorder):
        linux.read_machine(root)
    [machine] = machines
    entries: dict[str, tarfile.TarInfo] = {}
    with tarfile.open(file, "w:gz") as tar:
        for path, target in sorted(machine.links.items()):
            info = entries[path] = tarfile.TarInfo(path.lstrip("/"))
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
        for path, text in sorted(machine.files.items()):
            info = entries[path] = tarfile.TarInfo(path.lstrip("/"))
            body = text.encode("latin-1")
            info.size, info.mode = len(body), 0o644
            tar.addfile(info, io.BytesIO(body))
        for path in sorted(machine.folders - entries.keys()):
            if any(other.startswith(f"{path}/") for other in entries):
                continue  # made with what is in it
            info = tarfile.TarInfo(path.lstrip("/"))
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(info)
            entries[path] = info
    return len(entries)


def main() -> None:
    """Capture this machine, or one below another root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", help="the tar.gz file to write")
    parser.add_argument("--root", default="/", help="where /proc and /sys are")
    given = parser.parse_args()
    print(f"{capture(given.root, given.file)} entries in {given.file}")


if __name__ == "__main__":
    main()
