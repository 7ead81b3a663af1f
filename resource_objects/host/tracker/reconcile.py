"""Hosts and ledger in step: what a driver says is compared with what is kept, and written.

Reconciling is what a Kubernetes controller calls it: bring what is kept to what is there, host by
host, as often as somebody asks, whatever happened in between. What it costs is in what did not
change, for that is nearly everything nearly always. So a :class:`Reconciler` remembers, of each
host, what its driver said last and that it was kept so. As long as the driver says the same, and
the change feed tells of nobody else who changed the host's definition, there is nothing to do:
neither a read nor a write, and one small statement for all hosts together.

Everything else is looked at anew, many hosts at a time: their trees are read at once, the driver
edits a copy of each, and the differences are written in one transaction, at the generations that
were read. If that is refused, the host that it names is written apart from the others, or where
none is named one half after the other; until the one that is wrong is alone, and a finding.

Somebody else who changes what a driver says is put right once: people make mistakes. Who undoes it
a second time within an hour has a driver of its own that says otherwise. Then nothing is written
until the driver says something new, or that time is over (:attr:`FindingKind.CONTESTED`), so two
trackers of one host by mistake leave it as one of them says, and one of them tells; and when only
one is left, it is right again.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import datetime
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from resource_objects import clock, exceptions, names
from resource_objects.host.holdings import HostDevices, read_devices
from resource_objects.host.sync import StayingDevice, beside_held
from resource_objects.host.tracker.configuration import AppliedConfiguration, ProviderConfiguration
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.findings import Finding, FindingKind, HostReport
from resource_objects.host.tracker.settings import HostSettings
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
from resource_objects.resources.pci import DEVICES, PCIInventory

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

#: Before a host is read.
_NO_TREE = Provider("none")

#: So many hosts are read, and written, at once.
_PAGE = 250

#: More changes of others than this, and four for each host, are not read: the hosts are.
_MOST_CHANGES = 100

#: For so long what was restored is not restored once more.
CONTESTED = datetime.timedelta(hours=1)


@dataclasses.dataclass(frozen=True, slots=True)
class _Said:
    """What a driver said of a host, by value; ``available`` is None where it tells none."""

    identity: str | None
    available: Any


@dataclasses.dataclass(frozen=True, slots=True)
class _Restored:
    """What somebody else undid and was written again, and when, or when it was given up."""

    changes: str
    at: float

    @property
    def is_recent(self) -> bool:
        return clock.monotonic() - self.at < CONTESTED.total_seconds()


@dataclasses.dataclass(slots=True)
class _Known:
    """What is known of a host since it was last in step.

    ``uuids`` are those of its tree, ``shard`` where the feed tells of it (None: not known).
    ``is_open`` says that it has to be looked at whatever the driver says; ``is_foreign`` that this
    is because somebody else changed it, and ``by`` is who, if that is known. ``restored`` is what
    was written the last time that such a change was undone; ``is_contested`` that this was undone
    too, and is not written again for some time.
    """

    said: _Said
    uuids: frozenset[str]
    shard: int | None
    findings: tuple[Finding, ...] = ()
    is_open: bool = False
    is_foreign: bool = False
    by: FeedEntry | None = None
    restored: _Restored | None = None
    is_contested: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether there is nothing to do until the driver says something new."""
        if self.is_contested:
            return not self.is_open and self.restored is not None and self.restored.is_recent
        return not self.is_open


@dataclasses.dataclass(slots=True)
class _Look:
    """A host that is looked at: what its driver says now, and what came of it.

    ``retained`` are the inventories, by provider and class, that the driver no longer reports and
    that are in use: they stay, all of it reserved.
    """

    host: str
    said: _Said
    known: _Known | None
    kept: Provider | None = None
    shard: int | None = None
    tree: Provider = dataclasses.field(default_factory=lambda: _NO_TREE)
    staying: tuple[StayingDevice, ...] = ()
    retained: frozenset[tuple[str, str]] = frozenset()
    remarks: tuple[Finding, ...] = ()
    changes: DefinitionChanges | None = None
    moves: tuple[Move, ...] = ()
    reshaped: Difference | None = None
    restored: _Restored | None = None
    finding: Finding | None = None

    def begin(self) -> None:
        """Forget what an earlier try came to."""
        self.kept = self.shard = self.changes = self.restored = self.finding = None
        self.reshaped = None
        self.staying = self.moves = self.remarks = ()
        self.retained = frozenset()

    @property
    def reshaped_consumers(self) -> tuple[str, ...]:
        """The consumers whose allocations go elsewhere."""
        orders = () if self.reshaped is None else self.reshaped.orders
        return tuple(order.consumer for order in orders)

    def has(self, name: str | None) -> bool:
        """Tell whether a provider of that name is in its tree, or was."""
        roots = (self.tree, self.kept or self.tree)
        return any(one.name == name for root in roots for one in root.walk())

    @property
    def may_be_over(self) -> bool:
        """Whether something may be used beyond its capacity: it was, or figures are others now."""
        if self.finding is not None or self.kept is None:
            return False
        if self.retained:
            return True
        if self.changes is not None and any(one.changed for one in self.changes.updates):
            return True
        return any(
            record.used > record.capacity
            for provider in self.kept.walk()
            for _, inventory in provider.inventories.by_name()
            for record in inventory.to_records()
        )


#: Trees as they are kept, by name and uuid: ``(root, provider, shard)``.
_Trees: TypeAlias = Mapping[str, tuple[Provider, Provider, int]]


class Reconciler:
    """Brings the hosts of a driver and a ledger in step. Not for several threads at once."""

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
        self._configured = AppliedConfiguration(configuration)
        self._known: dict[str, _Known] = {}
        self._host_of: dict[str, str] = {}  # by the uuids of its tree
        self._cursor: Cursor | None = None
        self._own: set[str] = set()  # operations written since the cursor
        self._opened: set[str] = set()  # hosts, by following it the last time

    def named(self) -> dict[str, Finding | None]:
        """Return the hosts that the driver names, each with what is wrong with its name."""
        found: dict[str, Finding | None] = {}
        for given in self._driver.hosts():
            try:
                host = names.provider_name(given)
            except exceptions.InvalidInput as error:
                found[str(given)] = Finding.of(str(given), error)
                continue
            twice = Finding(host, FindingKind.NAMED_TWICE, said="by the driver; looked at once")
            found[host] = twice if host in found else None
        return found

    def look(self, hosts: Iterable[str]) -> Iterator[HostReport]:
        """Bring hosts in step; yield what was done or is wrong, of those where there is something.

        Whoever calls it has called :meth:`follow` before.

        :raises LedgerError: if the ledger cannot be reached. What was in step before still is
        """
        looks: list[_Look] = []
        for host in hosts:
            known = self._known.get(host)
            said = self._asked(host, known)
            if isinstance(said, Finding):
                yield HostReport(host, findings=(said,))
            elif said is not None:
                looks.append(_Look(host, said, known))
            elif known is not None and known.findings:
                yield HostReport(host, findings=known.findings)
        for start in range(0, len(looks), _PAGE):
            yield from self._reconcile(looks[start : start + _PAGE])

    def dry_run(self, host: str) -> Plan:
        """Return what a look at a host would write now; nothing is written, or remembered.

        :raises ResourceObjectsError: what is wrong with the host, and whatever its driver raises
        """
        wrong = self._asked(host, None)
        if isinstance(wrong, _Said):
            look = _Look(host, wrong, None)
            found = self._compared([look])
            if look.finding is None:
                known = {uuid: one.definition.name for uuid, one in found.stored.items()}
                if look.reshaped is not None:
                    known.update(look.reshaped.names)
                changes, definitions = merge_changes(host, found.changes), self._ledger.definitions
                orders = (*found.orders, *definitions.rename_orders(found))
                orders += definitions.renumbered(found.stored, changes, orders)
                plan = Plan(changes or None, orders)
                self._ledger.apply(plan, dry_run=True)
                names = {uuid: known[uuid] for uuid in plan.places if uuid in known}
                return dataclasses.replace(plan, names=names)
            wrong = look.finding
        if wrong is not None and wrong.error is not None:
            raise wrong.error
        raise exceptions.InvalidTree("host", host, str(wrong))

    def configure(self, configuration: ProviderConfiguration) -> None:
        """Take another configuration; the next look does what it says."""
        self._configured.change(configuration)
        for known in self._known.values():
            known.is_open = True

    def unconfigured(self, hosts: Iterable[str]) -> Iterator[HostReport]:
        """Yield what of the configuration is about no host, given all hosts of the driver."""
        for error in self._configured.left(frozenset(hosts)):
            finding = Finding(str(error.value), FindingKind.CONFIGURATION, error)
            yield HostReport(finding.host, findings=(finding,))

    def forget(self, hosts: Iterable[str]) -> None:
        """Forget hosts: what the ledger has of them stays."""
        for host in list(hosts):
            known = self._known.pop(host, None)
            for uuid in () if known is None else known.uuids:
                self._host_of.pop(uuid, None)

    def forget_others(self, hosts: Mapping[str, object]) -> None:
        """Forget all hosts but some."""
        if len(self._known) > len(hosts) or not self._known.keys() <= hosts.keys():
            self.forget(host for host in self._known if host not in hosts)

    # --- what a driver says ---

    def _asked(self, host: str, known: _Known | None) -> _Said | Finding | None:
        """Return what the driver says of a host; None: the same as before, and nothing is open."""
        try:
            identity = self._driver.identity(host)
            if identity is not None:
                identity = names.uuid_text(identity)
            available = self._driver.get_available_resource(host)
            if known is not None and known.is_waiting and available is not None:
                before = known.said
                if identity == before.identity and available == before.available:
                    return None
            # copied, for a driver may give out the same object again, with something else in it
            return _Said(identity, copy.deepcopy(available))
        except exceptions.InvalidInput as error:
            return Finding.of(host, error)
        except Exception as error:  # a driver may fail in any way: it is told with its host
            return Finding(host, FindingKind.DRIVER_FAILED, error)

    # --- what others changed ---

    def follow(self) -> frozenset[str]:
        """Open the hosts whose definition somebody else changed since the last time; return them.

        Cost: one small statement if nothing was written.

        :raises LedgerError: if the ledger cannot be reached
        """
        self._opened.clear()
        now = self._ledger.feed.cursor()
        if self._cursor is not None and now != self._cursor and self._known:
            try:
                now = self._followed(self._cursor, now)
            except exceptions.Expired as error:
                if not error.is_about("cursor"):
                    raise
                self._open(self._known, None)
        self._cursor = now
        self._own.clear()
        return frozenset(self._opened)

    def _followed(self, before: Cursor, now: Cursor) -> Cursor:
        """Read what was written after a cursor; return the one behind that."""
        after = self._confined(before, now)
        if sum(after.waiting(now).values()) > _MOST_CHANGES + 4 * len(self._known):
            self._open(self._known, None)
            return now
        while found := self._ledger.feed.changes(after):
            after = found.cursor
            for entry in found:
                if entry.operation in self._own:
                    continue
                if entry.providers or entry.consumers:
                    self._open({self._host_of.get(uuid, "") for uuid in entry.definitions}, entry)
                else:  # names of classes or traits are others now: anybody may be touched
                    self._open(self._known, entry)
        return after

    def _confined(self, before: Cursor, now: Cursor) -> Cursor:
        """Return a cursor that is at ``now`` but for the shards that tell of these hosts."""
        shards = {known.shard for known in self._known.values()}
        if None in shards or before.epoch != now.epoch:
            return before
        shards.add(0)  # what names nobody is told there
        heads, last = list(now.heads), list(now.last)
        for shard in shards:
            if shard is not None:
                heads[shard], last[shard] = before.heads[shard], before.last[shard]
        return Cursor(tuple(heads), tuple(last), now.epoch)

    def _open(self, hosts: Iterable[str], by: FeedEntry | None) -> None:
        for host in hosts:
            known = self._known.get(host)
            if known is not None:
                known.is_open = known.is_foreign = True
                known.by = by
                self._opened.add(host)

    # --- writing ---

    def _reconcile(self, looks: Sequence[_Look]) -> Iterator[HostReport]:
        """Bring hosts in step, in one transaction if that can be."""
        try:
            self._write(looks)
        except exceptions.DatabaseError:
            raise
        except exceptions.ResourceObjectsError as error:
            if len(looks) > 1:
                for part in _parted(looks, error):
                    yield from self._reconcile(part)
                return
            looks[0].finding = self._refused(looks[0], error)
        over = self._over_capacity([look for look in looks if look.may_be_over])
        for look in looks:
            report = self._done(look, over.get(look.host, ()))
            if report:
                yield report

    def _write(self, looks: Sequence[_Look]) -> None:
        operation = new_operation()
        self._own.add(operation)
        subject = subject_of_roots([look.host for look in looks])
        write = functools.partial(
            self._ledger.definitions.write,
            "define",
            subject,
            operation,
            lambda: self._compared(looks),
        )
        # another process may have allocated something since the host was read
        in_use = "InventoryInUse", "ProviderInUse"
        self._ledger.retries.retry(write, *in_use, tries=1 if len(looks) == 1 else 0)

    def _refused(self, look: _Look, error: exceptions.ResourceObjectsError) -> Finding:
        """Return the finding of an error; with the holders, if something that is gone is held."""
        finding = Finding.of(look.host, error)
        if finding.kind is not FindingKind.IN_USE or look.kept is None or look.changes is None:
            return finding
        gone = {one.name for one in look.changes.removals}
        removed = {
            (one.definition.name, name) for one in look.changes.updates for name in one.removed
        }
        uses = tuple(
            use
            for use in usage_of(self._ledger.backend.read(look.kept.uuid or ""))
            if use.holders
            and (use.provider in gone or (use.provider, use.resource_class) in removed)
        )
        return finding.held(uses) if uses else finding

    def _done(self, look: _Look, over: tuple[InventoryUsage, ...]) -> HostReport:
        """Remember what came of a look, and tell it."""
        known, finding = look.known, look.finding
        if finding is not None:
            if known is not None:
                known.is_contested = finding.kind is FindingKind.CONTESTED
                known.is_open = not known.is_contested
                known.findings = (finding,)
            return HostReport(look.host, findings=(finding,))
        findings = tuple(
            Finding(look.host, FindingKind.DEVICE_RETAINED, said=str(one)) for one in look.staying
        )
        gone = tuple(one for one in over if (one.provider, one.resource_class) in look.retained)
        if gone:
            error = exceptions.InUse("inventory", gone[0].provider, gone[0].resource_class)
            findings += (Finding.of(look.host, error).held(gone),)
        over = tuple(one for one in over if one not in gone)
        if over:
            findings += (Finding.over_capacity(look.host, over),)
        self.forget([look.host])
        uuids = _uuids_of(look)
        told = (*findings, *look.remarks)
        is_open = bool(findings or look.retained)
        self._known[look.host] = _Known(
            look.said, uuids, look.shard, told, is_open, restored=look.restored
        )
        self._host_of.update(dict.fromkeys(uuids, look.host))
        if not look.retained:  # a retained class may be one that the configuration said before
            self._configured.done(look.host, look.tree)
        return HostReport(look.host, look.changes or None, told, look.reshaped_consumers)

    def _over_capacity(self, looks: Sequence[_Look]) -> dict[str, tuple[InventoryUsage, ...]]:
        """Return what is used beyond its capacity, by host; but devices that stay are not."""
        if not looks:
            return {}
        uuids = [look.kept.uuid or "" for look in looks if look.kept is not None]
        usage = usage_of(self._ledger.backend.read(*uuids))
        host_of = {one.name: root.name for root in usage.providers for one in root.walk()}
        stay = {name for look in looks for name in _staying(look)}
        found: dict[str, tuple[InventoryUsage, ...]] = {}
        for use in usage.over_capacity:
            if use.provider not in stay:
                host = host_of[use.provider]
                found[host] = (*found.get(host, ()), use)
        return found

    # --- comparing ---

    def _compared(self, looks: Sequence[_Look]) -> Difference:
        """Return what is to be written of hosts; what is wrong with one is its finding."""
        kept = self._kept(looks)
        for look in looks:
            look.begin()
            self._try(look, functools.partial(self._edit, kept))
        self._keep_held([look for look in looks if look.finding is None])
        for look in looks:
            self._try(look, self._compare)
        right = [look for look in looks if look.finding is None]
        reshaped = [look.reshaped for look in right if look.reshaped is not None]
        orders = {order.consumer: order for one in reshaped for order in one.orders}
        if len(orders) < sum(len(one.orders) for one in reshaped):
            # somebody holds something of two of these hosts: one after the other, in halves
            raise exceptions.Stale("consumer", "consumer of two hosts", "while both are reshaped")
        return Difference(
            definitions_of(look.kept for look in right if look.kept is not None and look.changes),
            tuple(look.changes for look in right if look.changes is not None),
            orders=tuple(orders.values()),
            moves=tuple(move for look in right if look.changes for move in look.moves),
        )

    def _try(self, look: _Look, step: Callable[[_Look], None]) -> None:
        if look.finding is None:
            try:
                step(look)
            except _DriverFailed as failed:
                look.finding = Finding(look.host, FindingKind.DRIVER_FAILED, failed.error)
            except exceptions.DatabaseError:
                raise
            except exceptions.ResourceObjectsError as error:
                look.finding = Finding.of(look.host, error)

    def _kept(self, looks: Sequence[_Look]) -> _Trees:
        """Read the trees of hosts. Cost: one read."""
        keys = {key for look in looks for key in (look.host, look.said.identity) if key}
        columns = self._ledger.backend.read(*keys, allocations=False)
        numbers = columns.index.numbers
        return {
            key: (root, provider, numbers[root.uuid or ""] % SHARDS)
            for root in trees(columns)
            for provider in root.walk()
            for key in (provider.name, provider.uuid or "")
        }

    def _edit(self, kept: _Trees, look: _Look) -> None:
        """Let the driver edit a copy of the tree as it is kept."""
        with _asking():
            before = self._name_before(look, kept)
        look.finding = _mistaken(look, kept, before)
        if look.finding is not None:
            return
        if before in kept:
            look.kept, _, look.shard = kept[before]
            look.tree = _offered(look.kept.obj_clone())
            look.tree.update(name=look.host)
        else:
            look.tree = Provider(look.host, uuid=look.said.identity)
        uuid = look.tree.uuid
        self._configured.now.take_away(look.tree)
        with _asking():
            moves = self._driver.update_provider_tree(look.tree, look.said.available)
            look.moves = merge_moves(() if moves is None else moves)
            remarks = tuple(self._driver.warnings(look.host))
            invalid = tuple(self._driver.invalid_inventories(look.host))
        if (look.tree.name, look.tree.uuid) != (look.host, uuid):
            raise exceptions.InvalidTree("root", look.tree.name, f"{look.host} with its uuid")
        look.tree.check()
        invalid += self._settings.apply(look.tree, look.kept)
        wrong = self._configured.now.add(look.tree)
        look.remarks = (
            *(Finding(look.host, FindingKind.INVALID, error) for error in invalid),
            *(Finding(look.host, FindingKind.CONFIGURATION, error) for error in wrong),
            *(Finding(look.host, FindingKind.WARNING, error) for error in remarks),
        )

    def _name_before(self, look: _Look, kept: _Trees) -> str:
        """Return the name by which the ledger keeps a host: another one if it is renamed."""
        identity = look.said.identity
        if look.host in kept or identity is None or identity not in kept:
            return look.host
        root, provider, _ = kept[identity]
        if root is provider and self._driver.is_renamed(look.host, root.name):
            return root.name
        return look.host

    def _keep_held(self, looks: Sequence[_Look]) -> None:
        """Keep devices that somebody holds. Cost: one read, if there are devices."""
        with_devices = {
            look.kept.name: look
            for look in looks
            if look.kept is not None
            and any(DEVICES in child.inventories for child in look.kept.children)
        }
        if with_devices:
            for devices in read_devices(self._ledger, *with_devices):
                self._try(with_devices[devices.host], functools.partial(self._beside, devices))

    def _beside(self, kept: HostDevices, look: _Look) -> None:
        if look.moves:  # what is held of a device that is counted elsewhere goes there
            gone = {move.from_ for move in look.moves} - {
                one.name for one in look.tree.walk() if DEVICES in one.inventories
            }
            kept = kept.without(gone)
        held = beside_held(self._ledger, look.tree, kept=kept)
        look.tree, look.staying = held.tree, held.staying

    def _compare(self, look: _Look) -> None:
        """Say what is to be written of a host, unless somebody undoes that again and again."""
        changes = diff(look.kept, look.tree)
        if look.kept is not None and not look.moves:
            look.retained = _retain(look.kept, look.tree, changes)
            changes = diff(look.kept, look.tree) if look.retained else changes
        known = look.known
        if known is not None and known.said == look.said:
            look.restored = before = known.restored
            if changes and known.is_foreign:
                if before is not None and before.changes == str(changes) and before.is_recent:
                    if not known.is_contested:
                        known.restored = _Restored(before.changes, clock.monotonic())
                    said = _by(known.by, changes)
                    look.finding = Finding(look.host, FindingKind.CONTESTED, said=said)
                    return
                look.restored = _Restored(str(changes), clock.monotonic())
        look.changes = changes
        if changes and look.moves:
            # if somebody changed the tree meanwhile, the write sees it too, and all is done again
            with contextlib.suppress(exceptions.Stale):
                look.reshaped = self._ledger.definitions.compare_moving([look.tree], look.moves)
                [look.changes] = look.reshaped.changes


class _DriverFailed(Exception):
    """A driver raised something, be it an error of the library: it is no error of the ledger."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    """Ask a driver, which may fail in any way; what it said and cannot be goes through."""
    try:
        yield
    except exceptions.InvalidInput:
        raise
    except Exception as error:
        raise _DriverFailed(error) from error


def _parted(
    looks: Sequence[_Look], error: exceptions.ResourceObjectsError
) -> tuple[Sequence[_Look], Sequence[_Look]]:
    """Return the hosts that an error is not about, and those it names; or two halves."""
    subject = error.name if isinstance(error, exceptions.LedgerError) else None
    named = [look for look in looks if look.has(subject)]
    if 0 < len(named) < len(looks):
        return [look for look in looks if not look.has(subject)], named
    half = len(looks) // 2
    return looks[:half], looks[half:]


def _mistaken(look: _Look, kept: _Trees, before: str) -> Finding | None:
    """Return what is wrong if a name or uuid is that of something else.

    :param before: the name by which the ledger keeps the host
    """
    identity = look.said.identity
    if before not in kept:
        if identity is None or identity not in kept:
            return None
        said = f"its uuid {identity} is that of {kept[identity][1].name}"
        return Finding(look.host, FindingKind.OTHER_TREE, said=said)
    root, provider, _ = kept[before]
    if root is not provider:
        return Finding(look.host, FindingKind.OTHER_TREE, said=f"it is in the tree of {root.name}")
    if identity in (None, root.uuid):
        return None
    said = f"the machine says uuid {identity}, the ledger keeps {root.uuid}"
    return Finding(look.host, FindingKind.REPLACED, said=said)


def _offered(tree: Provider) -> Provider:
    """Return a tree without the devices that stay only because they are held."""
    children = []
    for child in tree.children:
        inventory = child.inventories.get(DEVICES)
        if isinstance(inventory, PCIInventory):
            there = [device for device in inventory.devices if not device.withdrawn]
            if not there:
                continue
            if len(there) < len(inventory.devices):
                own = dict(child.inventories.by_name())
                now = {**own, DEVICES.name: PCIInventory(there)}
                child.update(inventories=Inventories(now))
        children.append(child)
    if len(children) < len(tree.children):
        tree.update(children=children)
    return tree


def _retain(
    kept: Provider, tree: Provider, changes: DefinitionChanges
) -> frozenset[tuple[str, str]]:
    """Keep in a tree what changes would remove although it is in use, and reserve all of it.

    Not where the class is reported above or below from now on, which is a reshape without its
    moves; nor cells, and what shares with other inventories. The ledger refuses to remove these.

    :returns: the inventories that stay, by provider and class
    """
    gone = {one.uuid for one in changes.removals}
    removed = {one.definition.uuid: one.removed for one in changes.updates}
    if not gone and not any(removed.values()):
        return frozenset()
    parents = {one.name: parent for one, parent in kept.parents()}
    there = {key: one for one in tree.walk() for key in (one.uuid, one.name) if key}

    def place(before: Provider) -> Provider:
        """Return a provider in the tree; one that was removed is added again."""
        found = there.get(before.uuid or "") or there.get(before.name)
        if found is None:
            above = parents[before.name]
            assert above is not None, "the root stays"
            found = there[before.name] = place(above).add(
                before.name, traits=before.traits, uuid=before.uuid, aggregates=before.aggregates
            )
        return found

    grown = _grown(kept, changes)
    retained: set[tuple[str, str]] = set()
    for before in kept.walk():
        counts = dict(before.inventories.by_name())
        names = counts if before.uuid in gone else removed.get(before.uuid or "", ())
        in_use = {name: one for name in names if _is_in_use(one := counts.get(name))}
        if not in_use or before.shares:
            continue
        near = {one.name for one in _above(before, parents)}
        near |= {one.name for one in (there.get(before.uuid or "") or before).walk()}
        for name, inventory in in_use.items():
            if not any((one, name) in grown for one in near):
                stays = inventory.obj_clone()
                stays.update(reserved=inventory.total)
                provider = place(before)
                own = dict(provider.inventories.by_name())
                provider.update(inventories=Inventories({**own, name: stays}))
                retained.add((provider.name, name))
    return frozenset(retained)


def _is_in_use(inventory: object) -> TypeGuard[IntegerInventory]:
    return isinstance(inventory, IntegerInventory) and inventory.used > 0


def _above(provider: Provider, parents: Mapping[str, Provider | None]) -> Iterator[Provider]:
    above = parents[provider.name]
    while above is not None:
        yield above
        above = parents[above.name]


def _grown(kept: Provider, changes: DefinitionChanges) -> frozenset[tuple[str, str]]:
    """Return the inventories that are new or larger, by provider and class."""
    before = {
        (provider.uuid, record.resource_class): record.total
        for provider in kept.walk()
        for _, inventory in provider.inventories.by_name()
        for record in inventory.to_records()
    }
    made = [(one, one.inventories) for one in changes.creates]
    made += [(one.definition, one.changed) for one in changes.updates]
    return frozenset(
        (provider.name, record.resource_class)
        for provider, records in made
        for record in records
        if record.total > before.get((provider.uuid, record.resource_class), 0)
    )


def _staying(look: _Look) -> Iterator[str]:
    """Yield the names of the providers of devices that stay."""
    addresses = {one.address for one in look.staying}
    for child in look.tree.children if addresses else ():
        inventory = child.inventories.get(DEVICES)
        devices = inventory.devices if isinstance(inventory, PCIInventory) else ()
        if any(device.address in addresses for device in devices):
            yield child.name


def _uuids_of(look: _Look) -> frozenset[str]:
    """Return the uuids of the tree of a host that was written."""
    uuids = {one.uuid or "" for one in look.kept.walk()} if look.kept is not None else set()
    if look.changes is not None:
        uuids |= {one.uuid for one in look.changes.creates}
        uuids -= {one.uuid for one in look.changes.removals}
    return frozenset(uuids)


def _by(entry: FeedEntry | None, changes: DefinitionChanges) -> str:
    """Return who undoes what is written, and what."""
    who = "somebody" if entry is None else entry.actor or "somebody"
    how = "" if entry is None else f" ({entry.kind} of {entry.at:%Y-%m-%d %H:%M:%S})"
    return f"{who}{how} undid this twice, so it is not written again for an hour: {changes}"
