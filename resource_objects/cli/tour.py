"""The command that shows what the library does, on this machine."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import signal
import threading
import uuid as uuids
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from resource_objects import exceptions
from resource_objects.cli.base import VARIABLE, Command, database_url
from resource_objects.cli.consumer import claim_at, search_at

if TYPE_CHECKING:
    from resource_objects.cli.render import Glyphs
    from resource_objects.ledger import Ledger
    from resource_objects.providers import Claim, Provider
    from resource_objects.providers.usage import Usage
    from resource_objects.requests import Request
    from resource_objects.resources.records import InventoryRecord


class Tour(Command):
    """Show the library in a minute, on this machine.

    Stores this machine in the ledger, places two jobs on it, shows the refusal of a third, and
    releases everything, with the Python calls of each step (discover and provider_tree are of
    resource_objects.host, the others of resource_objects). During the tour most of the free
    resources of this machine are allocated; nothing else changes. A ledger that is named by
    --database or the environment is left unchanged; in the default ledger the machine stays, as
    after `host sync`.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Give the tour, and clean up afterwards in any case."""
        named = self.app.options.database or os.environ.get(VARIABLE)
        url = database_url(named, os.environ)
        with stopped_once(), contextlib.ExitStack() as opened:
            guide = Guide(self.say, self.glyphs, opened, url, machine_stays=not named)
            try:
                try:
                    guide.tell()
                finally:
                    guide.tidy()
            finally:
                guide.tidy()  # again, if a signal ended the first time


_MEMORY = "memory://"
_UNITS = {"VCPU": "CPUs", "MEMORY_MB": "MiB of memory", "DISK_GB": "GiB of disk"}
_PASSWORD = re.compile(r"(://[^/@]*?:)[^/]*@")
_FAREWELL = """
Now you: resource-objects host sync            keep this machine
         resource-objects claim job-1 VCPU=1   take a CPU
         resource-objects usage --tree         see who uses what
         resource-objects release job-1        give it back"""


class Guide:
    """One tour. :meth:`tell` runs it; :meth:`tidy` gives back what it took, however it ended."""

    def __init__(
        self,
        say: Callable[[str], None],
        glyphs: Glyphs,
        opened: contextlib.ExitStack,
        url: str,
        *,
        machine_stays: bool,
    ) -> None:
        self._say = say
        self._glyphs = glyphs
        self._opened = opened
        self._url = url
        self._machine_stays = machine_stays
        self._steps = 0
        self._added: tuple[Ledger, str] | None = (
            None  # the uuid of the machine, if it is removed at the end
        )
        self._jobs: list[tuple[Ledger, str]] = []  # those that may hold something

    def tell(self) -> None:
        """Give the tour.

        :raises ResourceObjectsError: if it is impossible, or another user is faster
        """
        self._say("A tour of resource_objects on this machine. It gives back all that it takes.")
        machine = self._look()
        ledger, half = self._keep(machine)
        jobs = self._place(ledger, machine.name, half)
        self._show(ledger, machine.name)
        self._refuse(ledger, machine.name, half)
        self._give_back(ledger, machine.name, jobs)
        self._leave(machine.name)
        self._say(_FAREWELL)

    def tidy(self) -> None:
        """Give back what the jobs hold, and forget the machine if it was not there before."""
        while self._jobs:
            ledger, job = self._jobs[-1]
            with contextlib.suppress(exceptions.NotFound):
                ledger.release(job)
            self._jobs.pop()
        with contextlib.suppress(exceptions.InUse):
            self._forget()

    # --- the steps ---

    def _look(self) -> Provider:
        from resource_objects.host.discovery import discover
        from resource_objects.host.tree import provider_tree

        self._begin("See what there is.", "machine = discover()")
        machine = provider_tree(discover())
        self._tell(f"{machine.name} has {_offers(machine)}.")
        return machine

    def _keep(self, machine: Provider) -> tuple[Ledger, Request]:
        """Store the machine, unless the ledger has it already or the database is full."""
        from resource_objects.ledger import connect
        from resource_objects.requests import Request

        self._begin(
            "Keep it in a ledger: in memory, in a file, or in a database for many machines.",
            f"ledger = connect({_quoted(_without_password(self._url))})",
            "ledger.sync(provider_tree(machine))",
        )
        ledger = self._opened.enter_context(connect(self._url))
        self._tell(self._sync(ledger, machine))
        half = half_of_free(ledger.provider(machine.name))
        if half is None:
            ledger = self._copy(machine)
            half = half_of_free(ledger.provider(machine.name))
        if half is None:
            raise exceptions.NoCandidates(f"{machine.name} is too small to be shared")
        return ledger, Request(half)

    def _sync(self, ledger: Ledger, machine: Provider) -> str:
        """Store the machine, unless the ledger has one of its name; return the result."""
        from resource_objects.providers import Provider

        uuid = str(uuids.uuid4())
        self._added = None if self._machine_stays else (ledger, uuid)
        try:
            ledger.provider(machine.name)
        except exceptions.NotFound as error:
            if not error.is_about("provider"):
                raise
            ours = Provider(machine.name, machine.inventories, traits=machine.traits, uuid=uuid)
            with contextlib.suppress(exceptions.AlreadyExists):  # since a moment ago
                return str(ledger.sync(ours))
        return f"{machine.name} is in the ledger already and is not changed."

    def _copy(self, machine: Provider) -> Ledger:
        from resource_objects.ledger import connect

        self._tell(
            f"Too little of {machine.name} is free there, so what follows happens in memory."
        )
        ledger = self._opened.enter_context(connect(_MEMORY))
        ledger.sync(machine)
        return ledger

    def _place(self, ledger: Ledger, host: str, half: Request) -> tuple[str, str]:
        ann, bob = _free_names(ledger)
        self._begin(
            "Two jobs request half of the free amount each. Both are placed.",
            f"half = Request({_quoted(half)})",
            f"ledger.claim({_quoted(ann)}, ledger.snapshot().candidates(half))",
        )
        for job in (ann, bob):
            self._tell(str(self._claim(ledger, job, half, host)))
        return ann, bob

    def _claim(self, ledger: Ledger, job: str, half: Request, host: str) -> Claim:
        from resource_objects.providers import Claim

        self._jobs.append((ledger, job))  # before: a claim may be made and its answer lost
        try:
            done = claim_at(ledger, job, half, host)
        except exceptions.AlreadyExists as error:
            if not error.is_about("consumer"):
                raise
            self._jobs.remove((ledger, job))  # of other users
            raise
        if isinstance(done, Claim):
            return done
        raise exceptions.NoCandidates(
            "another user allocated the free amount in the meantime; nothing of the tour is left, "
            "try again"
        )

    def _show(self, ledger: Ledger, host: str) -> None:
        self._begin("See who uses what.", "ledger.usage()")
        self._draw(ledger, host)

    def _refuse(self, ledger: Ledger, host: str, half: Request) -> None:
        self._begin(
            "A third job requests the same. It is refused, with the reasons.",
            "print(ledger.snapshot().candidates(half).explain())",
        )
        candidates = search_at(ledger, half, host)
        if candidates:
            self._tell("This time it would fit: another user released resources in the meantime.")
            return
        for reason in candidates.explain().reasons:
            self._tell(str(reason))

    def _give_back(self, ledger: Ledger, host: str, jobs: tuple[str, str]) -> None:
        self._begin(
            "The jobs end. Their resources are free again.",
            f"ledger.release({_quoted(jobs[0])})",
        )
        for job in jobs:
            ledger.release(job)
            self._jobs.remove((ledger, job))
        self._draw(ledger, host)

    def _leave(self, host: str) -> None:
        try:
            self._forget()
        except exceptions.InUse as error:
            if not error.is_about("provider"):
                raise
            self._added = None
            self._tell(f"{host} stays in the ledger: another user has allocations of it.")

    def _forget(self) -> None:
        """Remove the machine, if the tour created it and it is not to stay.

        :raises InUse: if another user has allocations of it
        """
        if self._added is None:
            return
        ledger, uuid = self._added
        with contextlib.suppress(exceptions.NotFound):
            ledger.remove(uuid)
        self._added = None

    # --- output ---

    def _begin(self, sentence: str, *calls: str) -> None:
        self._steps += 1
        self._say(f"\n{self._steps}. {sentence}")
        for call in calls:
            self._say(f"     >>> {call}")

    def _tell(self, text: str) -> None:
        for line in text.splitlines():
            self._say(f"   {line}")

    def _draw(self, ledger: Ledger, host: str) -> None:
        from resource_objects.cli import render

        self._tell(render.usage_tree(usage_of_host(ledger.usage(host), host), self._glyphs))


def _without_password(url: str) -> str:
    """Return a URL as it may be shown.

    >>> _without_password("postgresql+psycopg://me:secret@db/lab")
    'postgresql+psycopg://me:***@db/lab'
    """
    return _PASSWORD.sub(r"\1***@", url)


def _quoted(value: object) -> str:
    return f'"{value}"'


def _offers(machine: Provider) -> str:
    """Return the resources of a machine in words.

    >>> from resource_objects.providers import Provider
    >>> _offers(Provider("box", "VCPU=1,MEMORY_MB=2048,DISK_GB=9"))
    '1 CPU, 2048 MiB of memory and 9 GiB of disk'
    """
    totals = {
        record.resource_class: record.total
        for inventory in machine.inventories.values()
        for record in inventory.to_records()
    }
    parts = [f"{total} {_UNITS[kind]}" for kind, total in totals.items()]
    if totals.get("VCPU") == 1:
        parts[0] = parts[0].removesuffix("s")
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _free_names(ledger: Ledger) -> tuple[str, str]:
    """Return names that no consumer has, and that no other tour is likely to choose."""
    taken = ledger.usage().consumers
    while True:
        tag = uuids.uuid4().hex[:4]
        names = f"ann-{tag}", f"bob-{tag}"
        if not any(name in taken for name in names):
            return names


def half_of_free(host: Provider) -> dict[str, int] | None:
    """Return ``{class: amount}``: about half of the free amount of each class of the host itself.

    Twice that fits and three times does not; None if there is no such amount. A class that a
    provider below the host has too is left out.

    >>> from resource_objects.providers import Provider
    >>> half_of_free(Provider("box", "VCPU=3,MEMORY_MB=1001:used=1"))
    {'VCPU': 1, 'MEMORY_MB': 500}
    >>> half_of_free(Provider("box", "VCPU=1")) is None
    True
    """
    below = {
        kind
        for child in host.children
        for provider in child.walk()
        for kind in provider.inventories
    }
    parts = {
        record: _part(record)
        for kind, inventory in host.inventories.items()
        if kind not in below
        for record in inventory.to_records()
    }
    taken = {record.resource_class: part for record, part in parts.items() if part}
    third_fits = all(_free(record) >= 3 * part for record, part in parts.items() if part)
    return None if third_fits else taken


def _free(record: InventoryRecord) -> int:
    return record.capacity - record.used


def _part(record: InventoryRecord) -> int:
    """Return the most that two consumers may take each, 0 if that is less than one may take."""
    most = _free(record) // 2
    if record.max_unit is not None:
        most = min(most, record.max_unit)
    part = most // record.step_size * record.step_size
    return part if part >= record.min_unit else 0


def usage_of_host(usage: Usage, host: str) -> Usage:
    """Return the usage of a host itself, without what is below it."""
    from resource_objects.providers import Provider

    provider = next(item for root in usage.providers for item in root.walk() if item.name == host)
    return dataclasses.replace(
        usage,
        providers=(Provider(host, provider.inventories),),
        uses=tuple(use for use in usage if use.provider == host),
    )


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stopped_once() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and SIGHUP end the block by an exception, and ignore them from then on.

    So the block's clean-up runs in any case, and without interruption. Signals that were ignored
    before (``nohup``) stay ignored. Outside of the main thread nothing changes.

    :raises KeyboardInterrupt: after Ctrl-C
    :raises SystemExit: with 128 and the number of another signal, as in a shell
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        for heeded_number in heeded:
            signal.signal(heeded_number, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
