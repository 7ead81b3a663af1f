"""Reconciliation of hosts: compare the reports of a driver with the stored trees, and write.

A :class:`Reconciler` brings the stored state of each host to the reported state, whatever happened
in between, as a Kubernetes controller does. It remembers the last report of each host. While the
driver reports the same, and the change feed lists no other writer of the host's definition, an
update of the host costs neither a read nor a write, and one small statement for all hosts together.

Each other host is an :class:`Attempt`, a frozen value. Every step returns a new one:

==================  ===============================================================================
report              the driver reports the identity and the resources of the host
read                the stored tree is found, by the name of the host or by its uuid
ask the driver      the driver edits a copy of the tree; settings and provider files are applied
retain devices      allocated devices stay in the tree
compare             the tree is compared with the stored one; used inventories stay
write               the differences of many hosts are written at the generations that were read
==================  ===============================================================================

An error in a step becomes the finding of its host, and the later steps pass the attempt by. If the
write is refused, the host that the error names is written apart from the others. If it names none
of them, each half is written on its own.

A change of another writer that contradicts the driver is reverted once: people make mistakes. If
the same change is made again within :data:`CONTESTED_PERIOD`, the writer probably has a driver of
its own. Then the host stays as it is until the driver reports something new, or the period is over
(:attr:`FindingKind.CONTESTED`). So of two trackers of one host, one leaves the host to the other
and reports it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from resource_objects import clock, exceptions, names
from resource_objects.findings import Finding
from resource_objects.host.holdings import HostDevices, read_devices
from resource_objects.host.settings import HostSettings
from resource_objects.host.sync import retained_tree
from resource_objects.host.tracker.configuration import (
    AppliedConfiguration,
    ProviderConfiguration,
    apply_settings,
)
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.report import FindingKind, HostFinding, HostReport
from resource_objects.ledger.context import new_operation
from resource_objects.ledger.definitions import Difference, subject_of_roots
from resource_objects.providers import DefinitionChanges, Provider, diff
from resource_objects.providers.columns import trees
from resource_objects.providers.definition import definitions_of, merge_changes
from resource_objects.providers.feed import SHARDS, Cursor, FeedEntry
from resource_objects.providers.plan import Plan
from resource_objects.providers.reshape import Move, merge_moves
from resource_objects.providers.usage import InventoryUsage, usage_of
from resource_objects.resources import IntegerInventory, Inventories
from resource_objects.resources.pci import DEVICES, Device, PCIInventory
from resource_objects.resources.pci.device import SPENT

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: For this time a change that was reverted is not reverted again.
CONTESTED_PERIOD = datetime.timedelta(hours=1)

#: The number of hosts that are read, and written, at once.
_PAGE = 250

#: With more changes of other writers than this, and four per host, the hosts are read instead.
_MOST_CHANGES = 100

#: The tree of an attempt before its host is read.
_NO_TREE = Provider("none")

#: Stored trees by name and uuid of each provider: ``(root, provider, shard of the feed)``.
_Trees: TypeAlias = Mapping[str, tuple[Provider, Provider, int]]


@dataclasses.dataclass(frozen=True, slots=True)
class DriverReport:
    """The identity and the resources of a host by value, as its driver reports them."""

    identity: str | None
    available: Any  #: None if the driver cannot report the resources as a value


@dataclasses.dataclass(frozen=True, slots=True)
class Reversal:
    """The reverted change of another writer, and when it was reverted or left as it is."""

    changes: str
    at: float

    @property
    def is_recent(self) -> bool:
        return clock.monotonic() - self.at < CONTESTED_PERIOD.total_seconds()


@dataclasses.dataclass(frozen=True, slots=True)
class HostState:
    """A host as the last update left it.

    ``uuids`` are those of its tree, ``shard`` the shard of the feed that lists its changes (None:
    unknown). ``is_due`` requires an attempt whatever the driver reports; ``changed_by_other``
    because another writer changed the host, by the feed entry ``change`` where that is known.
    """

    report: DriverReport
    uuids: frozenset[str]
    shard: int | None
    findings: tuple[HostFinding, ...] = ()
    is_due: bool = False
    changed_by_other: bool = False
    change: FeedEntry | None = None
    reversal: Reversal | None = None
    is_contested: bool = False

    @property
    def waits_for_report(self) -> bool:
        """True if the host needs no attempt before the driver reports something new."""
        if self.is_contested and not (self.reversal and self.reversal.is_recent):
            return False
        return not self.is_due


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to bring a host in step: the report of its driver, and the results of the steps.

    ``state`` is the state after the last update. ``tree`` is the copy that the driver edits.
    ``driver_findings`` are about parts of the report: the rest of the host is in step. ``retained``
    are inventories, by provider and class, that the driver no longer reports and that are in use:
    they stay, completely reserved.
    """

    host: str
    report: DriverReport
    state: HostState | None
    tree: Provider
    stored: Provider | None = None
    shard: int | None = None
    moves: tuple[Move, ...] = ()
    driver_findings: tuple[HostFinding, ...] = ()
    retained_devices: tuple[Finding, ...] = ()
    retained: frozenset[tuple[str, str]] = frozenset()
    changes: DefinitionChanges | None = None
    reshape: Difference | None = None
    reversal: Reversal | None = None
    finding: HostFinding | None = None

    def concerns(self, provider: str | None) -> bool:
        """Return True if a provider of this name is in the tree, or in the stored one."""
        roots = (self.tree, self.stored or self.tree)
        return any(node.name == provider for root in roots for node in root.walk())

    @property
    def may_exceed_capacity(self) -> bool:
        """True if usage may exceed a capacity: it did before, or figures were changed."""
        if self.finding is not None or self.stored is None:
            return False
        if self.retained:
            return True
        if self.changes is not None and any(update.changed for update in self.changes.updates):
            return True
        return any(
            record.used > record.capacity
            for provider in self.stored.walk()
            for _, inventory in provider.inventories.by_name()
            for record in inventory.to_records()
        )


class Reconciler:
    """Brings the hosts of a driver in step with a ledger. Not thread-safe."""

    def __init__(
        self,
        ledger: Ledger,
        driver: Driver,
        settings: HostSettings,
        configuration: ProviderConfiguration,
    ) -> None:
        self._ledger = ledger
        self._driver = driver
        self._settings = settings
        self._configuration = AppliedConfiguration(configuration)
        self._states: dict[str, HostState] = {}
        self._host_of: dict[str, str] = {}  # by the uuids of its tree
        self._cursor: Cursor | None = None
        self._operations: set[str] = set()  # own writes since the cursor

    def named_hosts(self) -> dict[str, HostFinding | None]:
        """Return the hosts of the driver, each with the finding about its name, if any."""
        hosts: dict[str, HostFinding | None] = {}
        for name in self._driver.hosts():
            try:
                host = names.provider_name(name)
            except exceptions.InvalidInput as error:
                host = str(name) or repr(name)
                hosts[host] = HostFinding.of(host, error)
                continue
            finding = HostFinding(host, FindingKind.NAMED_TWICE, "by the driver; updated once")
            hosts[host] = finding if host in hosts else None
        return hosts

    def update(self, hosts: Iterable[str]) -> Iterator[HostReport]:
        """Bring hosts in step; yield the reports of those with changes or findings.

        The caller has called :meth:`poll_feed` before.

        :raises LedgerError: if the ledger cannot be reached; finished hosts stay in step
        """
        attempts: list[Attempt] = []
        for host in hosts:
            state = self._states.get(host)
            started = self._start(host, state)
            if isinstance(started, HostFinding):
                yield HostReport(host, findings=(started,))
            elif started is not None:
                attempts.append(started)
            elif state is not None and state.findings:
                yield HostReport(host, findings=state.findings)
        for start in range(0, len(attempts), _PAGE):
            yield from self._reconcile(attempts[start : start + _PAGE])

    def dry_run(self, host: str) -> Plan:
        """Return the plan that an update of a host would write now. Nothing is written.

        :raises ResourceObjectsError: the error that the update would report as a finding
        :raises Exception: any exception of the driver
        """
        started = self._start(host, None)
        assert started is not None, "only a host with a state can be in step"
        if isinstance(started, Attempt):
            (attempt,) = self._compare_all([started])
            started = attempt.finding or attempt
        if isinstance(started, HostFinding):
            raise started.error or exceptions.InvalidTree("host", host, str(started))
        difference, definitions = _difference([started]), self._ledger.definitions
        changes = merge_changes(host, difference.changes)
        orders = (*difference.orders, *definitions.rename_orders(difference))
        orders += definitions.renumbered(difference.stored, changes, orders)
        plan = Plan(changes or None, orders)
        self._ledger.apply(plan, dry_run=True)
        return plan.naming(difference.stored, difference.names)

    def configure(self, configuration: ProviderConfiguration) -> None:
        """Replace the provider configuration; the next update applies it to every host."""
        self._configuration.change(configuration)
        for host, state in self._states.items():
            self._states[host] = dataclasses.replace(state, is_due=True)

    def unused_configuration(self, hosts: Iterable[str]) -> Iterator[HostReport]:
        """Yield the findings about entries of the configuration that no host of the driver has."""
        for error in self._configuration.unused(frozenset(hosts)):
            finding = HostFinding(str(error.value), FindingKind.CONFIGURATION, error=error)
            yield HostReport(finding.subject, findings=(finding,))

    def forget(self, hosts: Iterable[str]) -> None:
        """Forget the states of hosts; the ledger stays as it is."""
        for host in hosts:
            state = self._states.pop(host, None)
            for uuid in () if state is None else state.uuids:
                self._host_of.pop(uuid, None)

    def forget_others(self, hosts: Mapping[str, object]) -> None:
        """Forget the states of all hosts but these."""
        self.forget(self._states.keys() - hosts.keys())

    def poll_feed(self) -> Collection[str]:
        """Mark the hosts whose definition another writer changed since the last call as due.

        Cost: one small statement if nothing was written.

        :returns: these hosts
        :raises LedgerError: if the ledger cannot be reached
        """
        changed: dict[str, FeedEntry | None] = {}
        before, now = self._cursor, self._ledger.feed.cursor()
        if before is not None and now != before and self._states:
            try:
                now, changed = self._read_feed(before, now)
            except exceptions.Expired as error:
                if not error.is_about("cursor"):
                    raise
                changed = dict.fromkeys(self._states)
        for host, change in changed.items():
            self._states[host] = dataclasses.replace(
                self._states[host], is_due=True, changed_by_other=True, change=change
            )
        self._cursor = now
        self._operations.clear()
        return changed

    def _read_feed(self, before: Cursor, now: Cursor) -> tuple[Cursor, dict[str, FeedEntry | None]]:
        """Read the changes after a cursor; return the cursor behind them, and the changed hosts."""
        shards = {state.shard for state in self._states.values()}
        if None not in shards and before.epoch == now.epoch:
            # only the shards of these hosts, and shard 0, which lists changes without a provider
            heads, last = list(now.heads), list(now.last)
            for shard in {0, *shards}:
                assert shard is not None, "checked above"
                heads[shard], last[shard] = before.heads[shard], before.last[shard]
            before = Cursor(tuple(heads), tuple(last), now.epoch)
        if sum(before.waiting(now).values()) > _MOST_CHANGES + 4 * len(self._states):
            return now, dict.fromkeys(self._states)
        changed: dict[str, FeedEntry | None] = {}
        while page := self._ledger.feed.changes(before):
            before = page.cursor
            for entry in page:
                if entry.operation in self._operations:
                    continue
                hosts: Iterable[str] = self._states
                if entry.providers or entry.consumers:  # else names of classes or traits changed
                    hosts = {self._host_of.get(uuid, "") for uuid in entry.definitions} - {""}
                changed.update(dict.fromkeys(hosts, entry))
        return before, changed

    # --- the steps of an attempt ---

    def _start(self, host: str, state: HostState | None) -> Attempt | HostFinding | None:
        """Ask the driver for its report of a host.

        :returns: the attempt; None if the host is in step with the report; or the finding
            ``INVALID`` or ``DRIVER_FAILED``
        """
        try:
            identity = self._driver.identity(host)
            if identity is not None:
                identity = names.uuid_text(identity)
            available = self._driver.get_available_resource(host)
            if state is not None and state.waits_for_report and available is not None:
                before = state.report
                if identity == before.identity and available == before.available:
                    return None
            # a copy, because a driver may return the same object again with other contents
            report = DriverReport(identity, copy.deepcopy(available))
        except exceptions.InvalidInput as error:
            return HostFinding.of(host, error)
        except Exception as error:  # a driver may fail in any way: the finding names its host
            return HostFinding(host, FindingKind.DRIVER_FAILED, error=error)
        return Attempt(host, report, state, _NO_TREE)

    def _compare_all(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Take all steps from the read to the comparison.

        Cost: one read, two with devices; two more for each host with devices for one use.
        """
        keys = {
            key for attempt in attempts for key in (attempt.host, attempt.report.identity) if key
        }
        columns = self._ledger.backend.read(*keys, allocations=False)
        numbers = columns.index.numbers
        stored: _Trees = {
            key: (root, provider, numbers[root.uuid or ""] % SHARDS)
            for root in trees(columns)
            for provider in root.walk()
            for key in (provider.name, provider.uuid or "")
        }
        attempts = [_step(self._read, attempt, stored) for attempt in attempts]
        attempts = [_step(self._ask_driver, attempt) for attempt in attempts]
        with_devices = [
            attempt.stored.name
            for attempt in attempts
            if attempt.finding is None and attempt.stored is not None
            if any(map(_devices, attempt.stored.children))
        ]
        if with_devices:  # without names, the devices of all hosts would be read
            devices = {host.host: host for host in read_devices(self._ledger, *with_devices)}
            attempts = [_step(self._retain_devices, attempt, devices) for attempt in attempts]
        return [_step(self._compare, attempt) for attempt in attempts]

    def _read(self, attempt: Attempt, stored: _Trees) -> Attempt:
        """Find the stored tree of a host, and copy it for the driver.

        :returns: the attempt with its tree, and with the stored one unless the host is new
        :raises _Rejected: with ``OTHER_TREE`` or ``REPLACED``; with ``DRIVER_FAILED``
        """
        host = name = attempt.host
        identity = attempt.report.identity
        if host not in stored and identity is not None and identity in stored:
            root, provider, _ = stored[identity]
            with _calling_driver(host):
                is_renamed = root is provider and self._driver.is_renamed(host, root.name)
            if not is_renamed:
                detail = f"its uuid {identity} is that of {provider.name}"
                raise _Rejected(host, FindingKind.OTHER_TREE, detail=detail)
            name = root.name
        if name not in stored:
            return dataclasses.replace(attempt, tree=Provider(host, uuid=identity))
        root, provider, shard = stored[name]
        if root is not provider:
            detail = f"it is in the tree of {root.name}"
            raise _Rejected(host, FindingKind.OTHER_TREE, detail=detail)
        if identity not in (None, root.uuid):
            detail = f"the machine reports uuid {identity}, the ledger has {root.uuid}"
            raise _Rejected(host, FindingKind.REPLACED, detail=detail)
        tree = _without_removed_devices(root.obj_clone())
        tree.update(name=host)
        return dataclasses.replace(attempt, stored=root, shard=shard, tree=tree)

    def _ask_driver(self, attempt: Attempt) -> Attempt:
        """Let the driver edit the tree; apply the settings and the provider configuration.

        :returns: the attempt with the edited tree, the moves, and the findings ``INVALID``,
            ``CONFIGURATION`` and ``WARNING``
        :raises _Rejected: with ``DRIVER_FAILED``
        :raises ResourceObjectsError: for an invalid value (``INVALID``), tree (``INVALID_TREE``) or
            move (``RESHAPE_FAILED``)
        """
        host, tree = attempt.host, attempt.tree
        uuid = tree.uuid
        self._configuration.current.remove_from(tree)
        with _calling_driver(host):
            moves = self._driver.update_provider_tree(tree, attempt.report.available)
            moves = merge_moves(() if moves is None else moves)
            warnings = tuple(self._driver.warnings(host))
            invalid = tuple(self._driver.invalid_inventories(host))
        if (tree.name, tree.uuid) != (host, uuid):
            raise exceptions.InvalidTree("root", tree.name, f"{host} with its uuid")
        tree.check()
        invalid += apply_settings(self._settings, tree, attempt.stored)
        kinds: dict[FindingKind, Iterable[exceptions.ResourceObjectsError]] = {
            FindingKind.INVALID: invalid,
            FindingKind.CONFIGURATION: self._configuration.current.add_to(tree),
            FindingKind.WARNING: warnings,
        }
        findings = tuple(
            HostFinding(host, kind, error=error)
            for kind, errors in kinds.items()
            for error in errors
        )
        return dataclasses.replace(attempt, moves=moves, driver_findings=findings)

    def _retain_devices(self, attempt: Attempt, devices: Mapping[str, HostDevices]) -> Attempt:
        """Retain the allocated devices of a host in its tree.

        :returns: the attempt with that tree, and a finding for each device that is stored otherwise
            than the driver reports it: ``DEVICE_RETAINED`` in the report
        """
        stored = None if attempt.stored is None else devices.get(attempt.stored.name)
        if stored is None:
            return attempt
        if attempt.moves:  # allocations of a device that is counted elsewhere move there
            sources = {move.from_ for move in attempt.moves}
            counted = {node.name for node in attempt.tree.walk() if DEVICES in node.inventories}
            stored = stored.without(sources - counted)
        retained = retained_tree(self._ledger, attempt.tree, stored=stored)
        return dataclasses.replace(attempt, tree=retained.tree, retained_devices=retained.findings)

    def _compare(self, attempt: Attempt) -> Attempt:
        """Compare the tree with the stored one, unless another writer reverts it repeatedly.

        :returns: the attempt with its changes and its reshape; or with the finding ``CONTESTED``
        :raises ResourceObjectsError: if moves do not fit the trees (``RESHAPE_FAILED``)
        """
        state, stored, tree = attempt.state, attempt.stored, attempt.tree
        changes, reshape, reversal = diff(stored, tree), None, None
        retained = frozenset[tuple[str, str]]()
        is_removing = changes.removals or any(update.removed for update in changes.updates)
        if stored is not None and is_removing and not attempt.moves:
            retained = _retain_used(stored, tree)
            changes = diff(stored, tree) if retained else changes
        if state is not None and state.report == attempt.report:
            reversal = state.reversal
            if changes and state.changed_by_other:
                if reversal and reversal.changes == str(changes) and reversal.is_recent:
                    if not state.is_contested:  # the period begins when the host is left as it is
                        reversal = Reversal(reversal.changes, clock.monotonic())
                    detail = _contested(state.change, changes)
                    finding = HostFinding(attempt.host, FindingKind.CONTESTED, detail=detail)
                    return dataclasses.replace(attempt, reversal=reversal, finding=finding)
                reversal = Reversal(str(changes), clock.monotonic())
        if changes and attempt.moves:
            # if the tree was changed since the read, the write is refused, and compares again
            with contextlib.suppress(exceptions.Stale):
                reshape = self._ledger.definitions.compare_moving([tree], attempt.moves)
                (changes,) = reshape.changes
        return dataclasses.replace(
            attempt, changes=changes, retained=retained, reshape=reshape, reversal=reversal
        )

    # --- writing ---

    def _reconcile(self, started: Sequence[Attempt]) -> Iterator[HostReport]:
        """Bring hosts in step, in one transaction if possible."""
        attempts, operation = started, new_operation()
        self._operations.add(operation)

        def compare() -> Difference:
            nonlocal attempts
            attempts = self._compare_all(started)
            # several hosts are not compared again because of one of them: it is written apart
            return dataclasses.replace(_difference(attempts), follows_use=len(started) == 1)

        subject = subject_of_roots([attempt.host for attempt in started])
        try:
            self._ledger.definitions.write("define", subject, operation, compare)
        except exceptions.DatabaseError:
            raise
        except exceptions.ResourceObjectsError as error:
            if len(started) > 1:
                name = error.name if isinstance(error, exceptions.LedgerError) else None
                concerned = [attempt.concerns(name) for attempt in attempts]
                if not any(concerned) or all(concerned):
                    concerned = [number >= len(started) // 2 for number in range(len(started))]
                for is_last in (False, True):
                    pairs = zip(started, concerned, strict=True)
                    part = [attempt for attempt, is_concerned in pairs if is_concerned is is_last]
                    yield from self._reconcile(part)
                return
            finding = self._refusal(attempts[0], error)
            attempts = [dataclasses.replace(attempts[0], finding=finding)]
        over_capacity = self._over_capacity(
            [attempt for attempt in attempts if attempt.may_exceed_capacity]
        )
        for attempt in attempts:
            report = self._finish(attempt, over_capacity.get(attempt.host, ()))
            if report:
                yield report

    def _refusal(self, attempt: Attempt, error: exceptions.ResourceObjectsError) -> HostFinding:
        """Return the finding of a refused write; of removed inventories with their consumers."""
        finding = HostFinding.of(attempt.host, error)
        changes, stored = attempt.changes, attempt.stored
        if finding.kind is not FindingKind.IN_USE or stored is None or changes is None:
            return finding
        removed = {(removal.name, None) for removal in changes.removals} | {
            (update.definition.name, name) for update in changes.updates for name in update.removed
        }
        uses = tuple(
            use
            for use in usage_of(self._ledger.backend.read(stored.uuid or ""))
            if use.holders
            and not removed.isdisjoint({(use.provider, None), (use.provider, use.resource_class)})
        )
        return HostFinding.of(attempt.host, error, uses)

    def _over_capacity(self, attempts: Sequence[Attempt]) -> dict[str, list[InventoryUsage]]:
        """Return the inventories whose usage exceeds the capacity, by host.

        Providers of retained devices, and of used devices for one use, are left out: all of such a
        device is reserved by design.
        """
        over: dict[str, list[InventoryUsage]] = {}
        if not attempts:
            return over
        uuids = [attempt.stored.uuid or "" for attempt in attempts if attempt.stored is not None]
        usage = usage_of(self._ledger.backend.read(*uuids))
        host_of = {node.name: root.name for root in usage.providers for node in root.walk()}
        retained = set()
        for attempt in attempts:
            addresses = {device.subject for device in attempt.retained_devices}
            for child in attempt.tree.children:
                inventory = child.inventories.get(DEVICES)
                if isinstance(inventory, PCIInventory):
                    spent = {use.address for use in inventory.usage if use.state == SPENT}
                    if any(device.address in addresses | spent for device in inventory.devices):
                        retained.add(child.name)
        for use in usage.over_capacity:
            if use.provider not in retained:
                over.setdefault(host_of[use.provider], []).append(use)
        return over

    def _finish(self, attempt: Attempt, over_capacity: Sequence[InventoryUsage]) -> HostReport:
        """Remember the state of a host, and return its report.

        :returns: the report, with the findings of the attempt, ``DEVICE_RETAINED``, and of
            ``over_capacity`` ``IN_USE`` and ``OVER_CAPACITY``
        """
        host, state, finding = attempt.host, attempt.state, attempt.finding
        if finding is not None:
            if state is not None:
                is_contested = finding.kind is FindingKind.CONTESTED
                self._states[host] = dataclasses.replace(
                    state,
                    findings=(finding,),
                    is_due=not is_contested,
                    is_contested=is_contested,
                    reversal=attempt.reversal if is_contested else state.reversal,
                )
            return HostReport(host, findings=(finding,))
        findings = [
            HostFinding(host, FindingKind.DEVICE_RETAINED, detail=str(device))
            for device in attempt.retained_devices
        ]
        retained: list[InventoryUsage] = []
        exceeded: list[InventoryUsage] = []
        for use in over_capacity:
            key = use.provider, use.resource_class
            (retained if key in attempt.retained else exceeded).append(use)
        if retained:
            first = retained[0]
            error = exceptions.InUse("inventory", first.provider, first.resource_class)
            findings.append(HostFinding.of(host, error, tuple(retained)))
        if exceeded:
            findings.append(HostFinding.over_capacity(host, tuple(exceeded)))
        is_due = bool(findings or attempt.retained)
        findings += attempt.driver_findings
        uuids = set() if attempt.stored is None else {p.uuid or "" for p in attempt.stored.walk()}
        if attempt.changes is not None:
            uuids |= {created.uuid for created in attempt.changes.creates}
            uuids -= {removal.uuid for removal in attempt.changes.removals}
        self.forget([host])
        self._host_of.update(dict.fromkeys(uuids, host))
        self._states[host] = HostState(
            attempt.report,
            frozenset(uuids),
            attempt.shard,
            tuple(findings),
            is_due,
            reversal=attempt.reversal,
        )
        if not attempt.retained:  # a retained class may be one of the previous configuration
            self._configuration.record(host, attempt.tree)
        orders = () if attempt.reshape is None else attempt.reshape.orders
        reshaped = tuple(order.consumer for order in orders)
        return HostReport(host, attempt.changes or None, tuple(findings), reshaped)


class _Rejected(Exception):
    """The end of an attempt with a finding about its host."""

    def __init__(
        self, host: str, kind: FindingKind, error: Exception | None = None, detail: str = ""
    ) -> None:
        super().__init__(detail)
        self.finding = HostFinding(host, kind, detail, error)


@contextlib.contextmanager
def _calling_driver(host: str) -> Iterator[None]:
    """Reject a host whose driver fails; ``InvalidInput`` describes a value and passes through."""
    try:
        yield
    except exceptions.InvalidInput:
        raise
    except Exception as error:
        raise _Rejected(host, FindingKind.DRIVER_FAILED, error) from error


def _step(step: Callable[..., Attempt], attempt: Attempt, *args: Any) -> Attempt:
    """Take a step of an attempt without a finding; an error becomes its finding."""
    if attempt.finding is not None:
        return attempt
    try:
        return step(attempt, *args)
    except _Rejected as rejection:
        finding = rejection.finding
    except exceptions.DatabaseError:
        raise
    except exceptions.ResourceObjectsError as error:
        finding = HostFinding.of(attempt.host, error)
    return dataclasses.replace(attempt, finding=finding)


def _difference(attempts: Iterable[Attempt]) -> Difference:
    """Return the changes of the attempts without a finding, as one write.

    :raises Stale: if two reshapes move allocations of one consumer: these hosts are written apart
    """
    attempts = [attempt for attempt in attempts if attempt.finding is None]
    reshapes = [attempt.reshape for attempt in attempts if attempt.reshape is not None]
    orders = {order.consumer: order for reshape in reshapes for order in reshape.orders}
    if len(orders) < sum(len(reshape.orders) for reshape in reshapes):
        raise exceptions.Stale("consumer", "consumer of two hosts", "while both are reshaped")
    return Difference(
        definitions_of(
            attempt.stored for attempt in attempts if attempt.stored is not None and attempt.changes
        ),
        tuple(attempt.changes for attempt in attempts if attempt.changes is not None),
        orders=tuple(orders.values()),
        moves=tuple(move for attempt in attempts if attempt.changes for move in attempt.moves),
        names={uuid: name for reshape in reshapes for uuid, name in reshape.names.items()},
    )


def _contested(change: FeedEntry | None, changes: DefinitionChanges) -> str:
    writer = "another process" if change is None else change.actor or "another process"
    how = "" if change is None else f" ({change.kind} of {change.at:%Y-%m-%d %H:%M:%S})"
    return f"{writer}{how} undid this twice, so it is not written again for an hour: {changes}"


def _devices(provider: Provider) -> Sequence[Device]:
    inventory = provider.inventories.get(DEVICES)
    return inventory.devices if isinstance(inventory, PCIInventory) else ()


def _without_removed_devices(tree: Provider) -> Provider:
    """Remove the devices from a tree that stay only because they are allocated."""
    children = []
    for child in tree.children:
        devices = _devices(child)
        present = [device for device in devices if not device.withdrawn]
        if len(present) < len(devices):
            if not present:
                continue
            inventories = dict(child.inventories.by_name())
            inventories[DEVICES.name] = PCIInventory(present)
            child.update(inventories=Inventories(inventories))
        children.append(child)
    if len(children) < len(tree.children):
        tree.update(children=children)
    return tree


def _retain_used(stored: Provider, tree: Provider) -> frozenset[tuple[str, str]]:
    """Retain used inventories that the driver removed from a tree, completely reserved.

    Three cases are left to the ledger, which refuses to remove them: cells and devices; a class
    that grows above or below, which is a reshape without its moves; providers with shares.

    :returns: the retained inventories, by provider and class
    """
    before, present = _by_key(stored), _by_key(tree)
    parents = {provider.name: parent for provider, parent in stored.parents()}
    retained: set[tuple[str, str]] = set()
    for provider in stored.walk():
        now = _find(present, provider)
        for name, inventory in provider.inventories.by_name():
            if not isinstance(inventory, IntegerInventory) or not inventory.used or provider.shares:
                continue
            if now is not None and name in now.inventories:
                continue
            path = [provider]
            while (parent := parents[path[-1].name]) is not None:
                path.append(parent)
            related = [node for above in path[1:] if (node := _find(present, above))]
            related += [] if now is None else now.walk()
            if any(_total(node, name) > _total(_find(before, node), name) for node in related):
                continue
            now = tree
            for above in reversed(path[:-1]):  # the root stays
                if (placed := _find(present, above)) is None:
                    placed = now.add(
                        above.name,
                        traits=above.traits,
                        uuid=above.uuid,
                        aggregates=above.aggregates,
                    )
                    present[above.name] = placed
                now = placed
            reserved = inventory.obj_clone()
            reserved.update(reserved=inventory.total)
            now.update(inventories=Inventories({**dict(now.inventories.by_name()), name: reserved}))
            retained.add((now.name, name))
    return frozenset(retained)


def _by_key(tree: Provider) -> dict[str, Provider]:
    return {key: node for node in tree.walk() for key in (node.uuid, node.name) if key}


def _find(providers: Mapping[str, Provider], like: Provider) -> Provider | None:
    return providers.get(like.uuid or "") or providers.get(like.name)


def _total(provider: Provider | None, name: str) -> int:
    inventories = () if provider is None else provider.inventories.by_name()
    records = (record for _, inventory in inventories for record in inventory.to_records())
    return sum(record.total for record in records if record.resource_class == name)
