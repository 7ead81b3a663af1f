"""A driver for a compute host, which libvirt describes."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from resource_objects.host.libvirt import Connection, read_machine
from resource_objects.host.machine import Machine
from resource_objects.host.settings import HostSettings
from resource_objects.host.tracker.drivers.machine import MachineDriver

__all__ = ["LibvirtDriver"]


class LibvirtDriver(MachineDriver):
    """Reports a compute host as libvirt describes it, else like a machine.

    :param connection: an open ``virConnect`` of libvirt-python, or an object with its methods
        (:class:`~resource_objects.host.libvirt.Connection`); or a callable that returns one for
        each update, so that a broken connection is opened again
    :param disk_path: the directory of the disks of guests; None: no disk is reported

    The other parameters are those of
    :class:`~resource_objects.host.tracker.drivers.machine.MachineDriver`.
    """

    def __init__(
        self,
        connection: Connection | Callable[[], Connection],
        settings: HostSettings | None = None,
        *,
        disk_path: str | None = None,
        uuid: str | None = None,
        max_age: datetime.timedelta | None = None,
        **options: Any,
    ) -> None:
        def read() -> Machine:
            current = connection() if callable(connection) else connection
            return read_machine(current, disk_path=disk_path)

        super().__init__(read, settings, uuid=uuid, max_age=max_age, **options)
