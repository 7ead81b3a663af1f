"""A driver for a compute host: the machine as libvirt tells it."""

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
    """Says what a compute host has, as libvirt tells it; all else is as of a machine.

    :param connection: an open ``virConnect`` of libvirt-python, or anything with its methods
        (:class:`~resource_objects.host.libvirt.Connection`); or a callable that returns one at
        each look, for connections that break and are opened anew
    :param disk_path: where disks of guests go; without it no disk is reported

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
            opened = connection() if callable(connection) else connection
            return read_machine(opened, disk_path=disk_path)

        super().__init__(read, settings, uuid=uuid, max_age=max_age, **options)
