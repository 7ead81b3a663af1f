"""The resource tracker: hosts and ledger in step, and the claims of a host."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resource_objects import exceptions, names
from resource_objects.host.compute_node import ComputeNode
from resource_objects.host.tracker.adopting import Adopter, OldRecords
from resource_objects.host.tracker.claims import HostClaim, HostClaims, Said
from resource_objects.host.tracker.configuration import ProviderConfiguration
from resource_objects.host.tracker.drift import HostDrift, drift_of
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.findings import Finding, FindingKind, HostReport, Report
from resource_objects.host.tracker.moves import Migration, MigrationKind, migration_id
from resource_objects.host.tracker.reconcile import Reconciler
from resource_objects.host.tracker.reporting import Reporting
from resource_objects.host.tracker.settings import HostSettings
from resource_objects.providers import Claim
from resource_objects.providers.plan import Plan
from resource_objects.requests import RequestLike
from resource_objects.resources import Amounts, AmountsLike, Inventories, Limits

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger, SyncResult

#: What a caller is not told by an error: that a record could not be brought up to the ledger, or
#: nobody be told of a change.
LOG = logging.getLogger("resource_objects.host.tracker")


class ResourceTracker:
    """Keeps the hosts of an agent and a ledger in step, and claims on those hosts.

    =======  ======================================================================================
    look     :meth:`update_available_resource`, :meth:`configure`, :meth:`dry_run`, :meth:`remove`
    read     :meth:`compute_node`, :meth:`inventories`, :meth:`drift`
    use      :meth:`update_usage`
    claim    :meth:`plan`, :meth:`claim`, :meth:`claimed`, :meth:`release`
    move     :meth:`move`, :meth:`confirm_move`, :meth:`revert_move`, :meth:`moving`, :meth:`moves`
    =======  ======================================================================================

    The ledger is the truth of what is used; the tracker only remembers what the driver said last.
    Any number of threads may call it: one of them looks at the hosts at a time; the rest is the
    ledger's, which needs no lock. Who forks makes a tracker in each process.

    :param driver: what the agent says of its hosts
    :param ratios: allocation ratios that count whatever the driver says, such as ``"VCPU=16"``;
        None for a class (``{"VCPU": None}``) keeps what the ledger has
    :param initial_ratios: ratios of inventories that are new, kept from then on
    :param reserved: what of each host is reserved, whatever the driver says
    :param report_every: how often looks at all hosts keep that these reported, at least a minute:
        one write for all of them (``Provider.reported_at``). None: never
    :param configuration: what provider configuration files add to the providers of the hosts
        (:mod:`resource_objects.host.tracker.configuration`); :meth:`configure` takes another
    :param on_change: called with a :class:`HostReport` when the definition of a host was changed;
        what it raises is a finding
    :param records: where hosts are looked up that the ledger does not know: they are read as their
        records say, and adopted by the first write (:mod:`.adopting`). Claims, moves and usage of
        this tracker, and each look, bring the records up to what the ledger says
    :raises InvalidInput: if ratios or amounts are none
    """

    def __init__(
        self,
        ledger: Ledger,
        driver: Driver,
        *,
        ratios: Mapping[Any, Any] | str | None = None,
        initial_ratios: Mapping[Any, Any] | str | None = None,
        reserved: AmountsLike | None = None,
        report_every: datetime.timedelta | None = None,
        configuration: ProviderConfiguration | None = None,
        on_change: Callable[[HostReport], object] = lambda report: None,
        records: OldRecords | None = None,
    ) -> None:
        self._ledger = ledger
        self._driver = driver
        self._on_change = on_change
        self._claims = HostClaims(
            ledger, driver, self._seen, None if records is None else self._writing
        )
        settings = HostSettings.of(ratios, initial_ratios, reserved)
        configured = ProviderConfiguration() if configuration is None else configuration
        self._reconciler = Reconciler(ledger, driver, settings, configured)
        self._reporting = Reporting(ledger, driver, report_every)
        self._adopter = None if records is None else Adopter(ledger, records)
        self._looking = threading.Lock()

    # --- hosts ---

    def update_available_resource(self, *hosts: str) -> Report:
        """Look at hosts and bring the ledger in step; one wrong host stops no other.

        What is wrong with a host is a finding, in each report until it is so no more; the ledger
        keeps the host as it was. What a report changed in a host it tells once, and so does
        ``on_change``. Cost: one small statement if the driver says what it said before and nobody
        else changed a host; else one read and one write for some hundred hosts.

        :param hosts: only these; by default all that the driver names
        :raises LedgerError: if the ledger cannot be reached: the look ends there. What was in step
            still is, and what is not is looked at the next time
        :raises Exception: whatever ``Driver.hosts`` raises: nobody knows which hosts there are
        """
        done: dict[str, HostReport] = {}
        try:
            with self._looking:
                named = self._reconciler.named()
                if hosts:
                    given = dict.fromkeys(map(names.provider_name, hosts))
                    named = {host: named.get(host, _unknown(host)) for host in given}
                else:
                    self._reconciler.forget_others(named)
                right = [host for host, finding in named.items() if _is_looked_at(finding)]
                changed = self._reconciler.follow()
                if self._adopter is not None:
                    self._adopter.forget(*changed)  # somebody may have removed it
                done |= self._not_adopted(right)
                for report in self._reconciler.look([host for host in right if host not in done]):
                    done[report.host] = report
                self._tell(right, done, all_of_them=not hosts)
                for finding in self._write_back(*right):
                    done[finding.host] = _with(done.get(finding.host), finding.host, finding)
                absent = [] if hosts else list(self._reconciler.unconfigured(right))
        finally:  # also of what was done before the ledger was gone
            for report in list(done.values()):
                done[report.host] = self._update(report)
        reports = (_with(done.get(host), host, finding) for host, finding in named.items())
        return Report((*(report for report in reports if report), *absent))

    def _not_adopted(self, hosts: list[str]) -> dict[str, HostReport]:
        """Adopt hosts that nobody did; return what is wrong with those that cannot be."""
        found: dict[str, HostReport] = {}
        for host in hosts:
            try:
                self._adopt(host)
            except exceptions.DatabaseError:
                raise
            except Exception as error:  # the records are somebody else's: it is told with its host
                wrong = Finding(host, FindingKind.NOT_ADOPTED, error)
                found[host] = HostReport(host, None, (wrong,))
        return found

    def _adopt(self, host: str) -> None:
        """Adopt a host with whatever is in use of it, before it is written for the first time."""
        if self._adopter is not None:
            self._adopter.adopt(names.provider_name(host))

    @contextlib.contextmanager
    def _seen(self, host: str) -> Iterator[Ledger]:
        """Yield the ledger, or one in memory where a host is as it will be when it is adopted."""
        if self._adopter is None:
            yield self._ledger
        else:
            with self._adopter.rehearsed(names.provider_name(host)) as rehearsal:
                yield rehearsal or self._ledger

    @contextlib.contextmanager
    def _writing(self, *hosts: str) -> Iterator[None]:
        """Adopt hosts before a block writes them, and bring their records up to it afterwards."""
        for host in hosts:
            self._adopt(host)
        try:
            yield
        finally:
            self._write_back(*hosts)

    def _write_back(self, *hosts: str) -> list[Finding]:
        """Bring the records of hosts up to what the ledger says; return which could not be.

        What was written to the ledger stays: the next look tries again, and tells.
        """
        wrong: list[Finding] = []
        if self._adopter is None:
            return wrong
        for host in hosts:
            try:
                self._adopter.write_back(names.provider_name(host))
            except exceptions.DatabaseError:
                raise
            except Exception as error:  # the records are somebody else's: it is told with its host
                wrong.append(Finding(host, FindingKind.RECORDS, error))
                LOG.warning("%s", wrong[-1])
        return wrong

    def _tell(self, hosts: list[str], done: dict[str, HostReport], *, all_of_them: bool) -> None:
        """Tell the statistics of the hosts that answered, and that they did."""
        heard = [host for host in hosts if host not in done or done[host].is_reported]
        for finding in self._reporting.tell(heard, all_of_them=all_of_them):
            done[finding.host] = _with(done.get(finding.host), finding.host, finding)

    def _update(self, report: HostReport) -> HostReport:
        """Call the listeners for a changed host; return the report with their exceptions."""
        if not report.changes:
            return report
        try:
            self._on_change(report)
        except Exception as error:  # it may fail in any way: others are told of their hosts
            wrong = Finding(report.host, FindingKind.NOTIFICATION, error)
            LOG.warning("%s", wrong)
            return _with(report, report.host, wrong)
        return report

    def dry_run(self, host: str) -> Plan:
        """Return what a look at a host would write now: definitions, and what goes along.

        Nothing is written. Printed, it is a line for each provider and each consumer that changes.

        :raises ResourceObjectsError: what the look would find wrong, such as ``InvalidPlan`` where
            moves would lose or invent an allocation
        :raises Exception: whatever the driver raises
        """
        with self._looking:
            return self._reconciler.dry_run(names.provider_name(host))

    def configure(self, configuration: ProviderConfiguration) -> None:
        """Take another provider configuration, as when its files were changed.

        The next look at a host adds what it says, and takes away what the one before said alone.
        """
        with self._looking:
            self._reconciler.configure(configuration)

    def remove(self, host: str) -> SyncResult:
        """Remove a host from the ledger, with all below it: it is gone for good.

        A host that the driver names no more is not removed by itself, for another agent may name it
        now. One that the driver still names comes back with the next look.

        :raises NotFound: if it is not there
        :raises InUse: if somebody holds something of it
        """
        with self._looking:
            self._reconciler.forget([names.provider_name(host)])
            removed = self._ledger.remove(host)
            if self._adopter is not None:
                self._adopter.forget(names.provider_name(host))
            return removed

    def drift(self, *hosts: str, older_than: datetime.timedelta | None = None) -> HostDrift:
        """Return what differs between who holds something of hosts and who runs there.

        Nothing is changed: ``ledger.apply`` of its plan mends it, if somebody decides so. Cost: a
        read of the hosts; if somebody has drifted another one of these consumers, and the driver
        is asked again.

        :param hosts: only these; by default all that the driver names
        :param older_than: a claim that is not confirmed is on its way, and no drift, unless it is
            older than this; None: it is none however old it is
        :raises LedgerError: if the ledger cannot be reached
        """
        named = self._reconciler.named() if not hosts else dict.fromkeys(hosts)
        right = [names.provider_name(host) for host, found in named.items() if _is_looked_at(found)]
        return drift_of(self._ledger, self._driver, right, older_than)

    def inventories(self, host: str) -> Inventories:
        """Return what a host has and what of it is used, as ``ledger.inventories`` does.

        :raises NotFound: if it is not in the ledger, and has no record
        """
        try:
            return self._ledger.inventories(host)
        except exceptions.NotFound as error:
            if not error.is_about("provider"):
                raise
            if self._adopter is None:
                raise
            return self._adopter.view(names.provider_name(host)).inventories

    def compute_node(self, host: str, consumer: str | None = None) -> ComputeNode:
        """Return a host as a record in the words of the field, bound to the ledger.

        :param consumer: for whom it consumes; None: for nobody in particular, as
            ``ComputeNode.bind`` says. One that only its record knows is bound to nothing yet
        :raises NotFound: if it is not in the ledger, and has no record
        """
        if self._adopter is not None:
            return self._adopter.view(names.provider_name(host), consumer)
        return ComputeNode.load(self._ledger, host, consumer)

    # --- use ---

    def update_usage(
        self, host: str, amounts: AmountsLike, consumer: str | None = None
    ) -> ComputeNode:
        """Add amounts to what is used of a host; negative ones give back. All or nothing.

        For an agent that knows how much is used and not by whom; who does, claims. It is about what
        a compute node has a column for; of other resources it has none.

        :param consumer: as :meth:`compute_node`
        :returns: the node as it is now
        :raises CapacityException: if it does not fit, or more is given back than is used

        >>> import resource_objects as ro
        >>> ledger = ro.connect("memory://")
        >>> done = ledger.sync(ro.Provider("box", "VCPU=8,MEMORY_MB=4096"))
        >>> class Lab(Driver):
        ...     def hosts(self): return ["box"]
        ...     def get_available_resource(self, host): return "VCPU=8,MEMORY_MB=4096"
        >>> tracker = ResourceTracker(ledger, Lab())
        >>> tracker.update_usage("box", "VCPU=2,MEMORY_MB=512").vcpus_used
        2
        """
        with self._writing(host):
            node = self.compute_node(host, consumer)
            self._update_usage(node, Amounts(amounts))
            node.save()
        return node

    def _update_usage(self, node: ComputeNode, amounts: Amounts) -> None:
        for resource, amount in amounts.items():
            node.inventories[resource].consume(amount)

    # --- claims ---

    def plan(
        self,
        consumer: str,
        host: str,
        request: RequestLike,
        *,
        limits: Limits | AmountsLike | None = None,
        ignore_maintenance: bool = False,
    ) -> HostClaim:
        """Return where a request would go on a host; nothing is taken, and nothing written.

        Amounts, cells, devices, traits and groups are decided together. ``allocate()`` of the claim
        that is returned takes just that. A host that only its record knows is planned as it will be
        when it is adopted. Cost: one read of the tree of the host, and a search.

        :param request: as for :meth:`claim`
        :param limits: as for :meth:`claim`; what is planned is taken under them too
        :param ignore_maintenance: True to plan also on what is out of service
        :raises NoCandidates: (a ``CapacityException``) if it does not fit, with the reasons
        :raises NotFound: if the host is not there, and has no record
        """
        name = names.provider_name(host)
        return self._claims.plan(consumer, name, request, ignore_maintenance, limits)

    def claim(
        self,
        consumer: str,
        host: str,
        request: RequestLike,
        *,
        project: str | None = None,
        user: str | None = None,
        consumer_type: str | None = None,
        expires_in: datetime.timedelta | None = None,
        expires_at: datetime.datetime | None = None,
        limits: Limits | AmountsLike | None = None,
        ignore_maintenance: bool = False,
    ) -> HostClaim:
        """Take a request of a host for a consumer: all together in one transaction, or none.

        Asked again for the same, in whichever process, it is the same claim. So is what a scheduler
        claimed for the consumer on this host, also as where a move goes: the host then looks at it
        (:meth:`.Driver.admit`), may refuse it, or have other units of the same, and adds what it
        takes besides (:meth:`.Driver.overhead`). What this call did not take stays when the host
        refuses: whoever took it takes something else instead. In a ``with`` statement the claim is
        given back if the block raises. Cost: one read of the tree of the host, if something is
        located, and one write.

        :param request: text, amounts, a request, a claim, or a candidate of a search. What the host
            does not have itself, such as disk, is taken of a pool that gives to it
        :param project, user, consumer_type, expires_in, expires_at: as for ``ledger.claim``
        :param limits: the most that may be used of the host itself after it, whatever its capacity:
            totals that a scheduler worked out and sends along, such as ``"VCPU=48"``
        :param ignore_maintenance: as for ``ledger.claim``
        :raises NoCandidates: (a ``CapacityException``) if it does not fit, with the reasons
        :raises HostRefused: (a ``CapacityException``) if the host does not accept it
        :raises AlreadyExists: if the consumer holds something else, or elsewhere
        :raises NotFound: if the host is not there
        """
        said: Said = {
            "project": project,
            "user": user,
            "consumer_type": consumer_type,
            "expires_in": expires_in,
            "expires_at": expires_at,
            "limits": limits,
            "ignore_maintenance": ignore_maintenance,
        }
        return self._claims.claim(consumer, names.provider_name(host), request, said)

    def get_claim(self, consumer: str) -> HostClaim:
        """Return the claim of a consumer, whichever process made it. Cost: two small reads.

        :raises NotFound: if it holds nothing
        """
        return self._claims.get_claim(names.consumer_name(consumer))

    def release(self, consumer: str) -> Claim:
        """Give back all that a consumer holds, and what its move holds, in one transaction.

        The move counts as reverted then.

        :returns: what the consumer held
        :raises NotFound: if it holds nothing
        """
        return self._claims.moves.release(names.consumer_name(consumer))

    # --- moves ---

    def move(
        self,
        consumer: str,
        host: str | None,
        request: RequestLike | None = None,
        *,
        kind: MigrationKind = MigrationKind.RESIZE,
        migration: str | None = None,
        limits: Limits | AmountsLike | None = None,
        ignore_maintenance: bool = False,
    ) -> Migration:
        """Begin a move of a consumer to a host: it holds the destination from now on.

        Its migration holds the source until :meth:`confirm_move` or :meth:`revert_move`, which any
        process may call. Repeated with the same migration it is the same move, after a crash too.
        A resize within a host holds both sizes until then. A rebuild and a shelving are done at
        once: their move is confirmed when this returns. Who is unshelved holds the destination
        alone. Cost: a few small reads, and then as :meth:`claim`.

        :param host: where it goes; None for a shelving
        :param request: as for :meth:`claim`; None for what the consumer has, which a resize, a
            rebuild and an unshelving cannot have. A live migration keeps the sizes of its pages
        :param migration: its id, a uuid, or a name of which one is made; None: one is made up
        :param limits: as for :meth:`claim`, of the host where it goes
        :param ignore_maintenance: as for ``ledger.move``
        :raises InvalidInput: if the kind, the host, the request and where the consumer is do not go
            together; or the migration began for something else
        :raises Conflict: if it is moving by another migration
        :raises NotFound: if it holds nothing
        :raises AlreadyExists: if it holds something and is to be unshelved
        :raises CapacityException: if it does not fit, with the reasons; nothing moved then
        """
        name = names.consumer_name(consumer)
        to = None if host is None else names.provider_name(host)
        of_host = None if limits is None or to is None else {to: limits}
        said = {"ignore_maintenance": ignore_maintenance, "limits": of_host}
        return self._claims.moves.begin(
            name, to, request, migration_id(name, migration), kind, said
        )

    def confirm_move(self, consumer: str, migration: str) -> Migration:
        """End a move at the destination: the source is released.

        May be repeated; the second call changes nothing.

        :raises Conflict: if it was reverted
        :raises NotFound: if the migration is unknown, or its operation was forgotten
        """
        name = names.consumer_name(consumer)
        return self._claims.moves.confirm(name, migration_id(name, migration))

    def revert_move(self, consumer: str, migration: str) -> Migration:
        """End a move at the source: the consumer holds that again, as before.

        May be repeated; the second call changes nothing.

        :raises Conflict: if it was confirmed
        :raises NotFound: if the migration is unknown, or its operation was forgotten
        """
        name = names.consumer_name(consumer)
        return self._claims.moves.revert(name, migration_id(name, migration))

    def get_move(self, consumer: str) -> Migration:
        """Return the move of a consumer that is in progress.

        :raises NotFound: if it is not moving
        """
        return self._claims.moves.get_move(names.consumer_name(consumer))

    def moves(self, host: str | None = None) -> tuple[Migration, ...]:
        """Return the moves in progress, by consumer, for an agent that starts again.

        Not who is being unshelved: that is a claim of a consumer that is not confirmed.

        Cost: the consumers of the host, and two small reads.

        :param host: only those from or to this one
        """
        return self._claims.moves.in_progress(host)


def _unknown(host: str) -> Finding:
    return Finding(host, FindingKind.UNKNOWN_HOST, said="the driver does not name it")


def _is_looked_at(finding: Finding | None) -> bool:
    return finding is None or finding.kind is FindingKind.NAMED_TWICE


def _with(report: HostReport | None, host: str, finding: Finding | None) -> HostReport:
    """Return the report of a host with one more finding, if there is one."""
    said = report or HostReport(host)
    if finding is None:
        return said
    return dataclasses.replace(said, findings=(*said.findings, finding))
