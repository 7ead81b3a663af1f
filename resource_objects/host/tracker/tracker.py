"""The resource tracker: hosts and ledger in step, and the claims of a host."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from resource_objects import exceptions, names
from resource_objects.host.compute_node import ComputeNode
from resource_objects.host.settings import HostSettings
from resource_objects.host.tracker.adopting import Adopter, LegacyRecords
from resource_objects.host.tracker.claims import ClaimOptions, HostClaim, HostClaims
from resource_objects.host.tracker.configuration import ProviderConfiguration
from resource_objects.host.tracker.drift import HostDrift, drift_of
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.moves import Migration, MigrationKind, migration_id
from resource_objects.host.tracker.reconcile import Reconciler
from resource_objects.host.tracker.report import (
    FindingKind,
    HostFinding,
    HostReport,
    Report,
    StatisticsReporter,
)
from resource_objects.providers import Claim
from resource_objects.providers.plan import Plan
from resource_objects.requests import RequestLike
from resource_objects.resources import Amounts, AmountsLike, Inventories, Limits

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger, SyncResult

#: Logs what errors do not report: a record that could not be written, a listener that failed.
LOG = logging.getLogger("resource_objects.host.tracker")


class ResourceTracker:
    """Keeps the hosts of an agent in step with a ledger, and allocates their resources.

    =======  ======================================================================================
    update   :meth:`update_available_resource`, :meth:`configure`, :meth:`dry_run`, :meth:`remove`
    read     :meth:`compute_node`, :meth:`inventories`, :meth:`drift`
    use      :meth:`update_usage`
    claim    :meth:`plan`, :meth:`claim`, :meth:`get_claim`, :meth:`release`
    move     :meth:`move`, :meth:`confirm_move`, :meth:`revert_move`, :meth:`get_move`,
             :meth:`moves`
    =======  ======================================================================================

    The ledger alone records usage; the tracker remembers only the last reports of the driver.
    Thread-safe: one thread at a time updates hosts, and the ledger needs no lock for the rest. A
    process that forks makes a tracker in each child.

    :param driver: reports the resources of the hosts
    :param ratios: allocation ratios in place of those that the driver reports, such as
        ``"VCPU=16"``; None for a class (``{"VCPU": None}``) retains the stored one
    :param initial_ratios: ratios of new inventories, retained from then on
    :param reserved: amounts reserved on each host, in place of those that the driver reports.
        ``MEMORY_MB`` also replaces the memory in huge pages that ``MachineDriver`` reserves
    :param report_every: how often an update of all hosts records that they reported
        (``Provider.reported_at``), in one write for all; at least a minute. None: never
    :param configuration: provider configuration files
        (:mod:`resource_objects.host.tracker.configuration`); :meth:`configure` replaces them
    :param on_change: called with a :class:`HostReport` when the definition of a host was changed;
        an exception of it is a finding
    :param records: records of hosts that the ledger does not have: these are read from their
        records, and adopted by the first write (:mod:`.adopting`). Claims, moves, usage and updates
        of this tracker write the ledger's figures to the records
    :raises InvalidInput: for invalid ratios or amounts
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
        records: LegacyRecords | None = None,
    ) -> None:
        self._ledger = ledger
        self._driver = driver
        self._on_change = on_change
        writing = None if records is None else self._writing
        self._claims = HostClaims(ledger, driver, self._ledger_with, writing)
        settings = HostSettings(ratios=ratios, initial_ratios=initial_ratios, reserved=reserved)
        self._reconciler = Reconciler(
            ledger, driver, settings, configuration or ProviderConfiguration()
        )
        self._statistics = StatisticsReporter(ledger, driver, report_every)
        self._adopter = None if records is None else Adopter(ledger, records)
        self._lock = threading.Lock()

    # --- hosts ---

    def update_available_resource(self, *hosts: str) -> Report:
        """Bring hosts in step with the reports of their driver. An invalid host stops no other.

        A fault of a host is a finding, in every report until it is corrected; the ledger keeps the
        host as it was. A change is in one report, and passed to ``on_change`` once.

        Cost: one small statement if the driver reports the same as before and no other process
        changed a host. Else one read and one write for some hundred hosts; a further read for those
        with devices, two for each host with devices for one use, and one for those of which usage
        may exceed a capacity. Statistics and times of report are written in addition.

        :param hosts: only these; by default all hosts of the driver
        :raises LedgerError: if the ledger cannot be reached. The update ends there; the next one
            continues with the remaining hosts
        :raises Exception: any exception of ``Driver.hosts``
        """
        reports: dict[str, HostReport] = {}
        unused: list[HostReport] = []
        try:
            with self._lock:
                named = self._named_hosts(hosts)
                valid = [host for host, finding in named.items() if _is_updated(finding)]
                changed = self._reconciler.poll_feed()
                _add_findings(reports, self._adopt_all(valid, changed))
                adopted = [host for host in valid if host not in reports]
                for report in self._reconciler.update(adopted):
                    reports[report.host] = report
                missing = {host for host, report in reports.items() if not report.is_reported}
                reported = [host for host in valid if host not in missing]
                failures = self._statistics.write(reported, are_all=not hosts)
                _add_findings(reports, (*failures, *self._write_back(*valid)))
                if not hosts:
                    unused += self._reconciler.unused_configuration(valid)
        finally:  # also for the hosts that were changed before the ledger was lost
            _add_findings(reports, [*filter(None, map(self._notify, reports.values()))])
        _add_findings(reports, filter(None, named.values()))
        return Report((*(reports[host] for host in named if reports.get(host)), *unused))

    def _named_hosts(self, hosts: Collection[str]) -> dict[str, HostFinding | None]:
        """Return the hosts to update, each with the finding about its name, if any."""
        named = self._reconciler.named_hosts()
        if not hosts:
            self._reconciler.forget_others(named)
            return named
        kind, detail = FindingKind.UNKNOWN_HOST, "the driver does not name it"
        return {
            host: named.get(host, HostFinding(host, kind, detail=detail))
            for host in dict.fromkeys(map(names.provider_name, hosts))
        }

    def _adopt_all(self, hosts: list[str], changed: Iterable[str]) -> list[HostFinding]:
        """Adopt hosts; return the findings of failures.

        :param changed: hosts that another process changed, and may have removed
        """
        if self._adopter is None:
            return []
        self._adopter.forget(*changed)
        return list(_failures(self._adopter.adopt, hosts, FindingKind.NOT_ADOPTED))

    def _notify(self, report: HostReport) -> HostFinding | None:
        """Pass the report of a changed host to the listener; return the finding of its failure."""
        try:
            if report.changes:
                self._on_change(report)
        except Exception as error:  # a listener may fail in any way
            finding = HostFinding(report.host, FindingKind.NOTIFICATION, error=error)
            LOG.warning("%s", finding)
            return finding
        return None

    @contextlib.contextmanager
    def _ledger_with(self, host: str) -> Iterator[Ledger]:
        """Yield the ledger, or one in memory with a host as it will be after its adoption."""
        if self._adopter is None:
            yield self._ledger
        else:
            with self._adopter.rehearsal(names.provider_name(host)) as rehearsal:
                yield rehearsal or self._ledger

    @contextlib.contextmanager
    def _writing(self, *hosts: str) -> Iterator[None]:
        """Adopt hosts before a block writes them; write their figures to the records after it."""
        if self._adopter is not None:
            for host in hosts:
                self._adopter.adopt(names.provider_name(host))
        try:
            yield
        finally:
            self._write_back(*hosts)

    def _write_back(self, *hosts: str) -> list[HostFinding]:
        """Write the ledger's figures to the records of hosts; return the findings of failures.

        The next update repeats a failed write.
        """
        findings: list[HostFinding] = []
        if self._adopter is not None:
            for finding in _failures(self._adopter.write_back, hosts, FindingKind.RECORDS):
                findings.append(finding)
                LOG.warning("%s", finding)
        return findings

    def dry_run(self, host: str) -> Plan:
        """Return the plan that an update of a host would write now. Nothing is written.

        :raises ResourceObjectsError: the error that the update would report as a finding, such as
            ``InvalidPlan`` if moves would lose or invent an allocation
        :raises Exception: any exception of the driver
        """
        with self._lock:
            return self._reconciler.dry_run(names.provider_name(host))

    def configure(self, configuration: ProviderConfiguration) -> None:
        """Replace the provider configuration, for example when its files were changed.

        The next update of a host adds what it describes, and removes what only the previous one
        added.
        """
        with self._lock:
            self._reconciler.configure(configuration)

    def remove(self, host: str) -> SyncResult:
        """Remove a host with its whole tree from the ledger, permanently.

        A host that the driver no longer names is never removed automatically, because another agent
        may name it now. A host that the driver still names is created again by the next update.

        :raises NotFound: if the ledger does not have the host
        :raises InUse: if a consumer has allocations there
        """
        with self._lock:
            self._reconciler.forget([names.provider_name(host)])
            removed = self._ledger.remove(host)
            if self._adopter is not None:
                self._adopter.forget(names.provider_name(host))
            return removed

    def drift(self, *hosts: str, older_than: datetime.timedelta | None = None) -> HostDrift:
        """Compare the allocations of hosts with the consumers that run there.

        Nothing is changed; ``ledger.apply`` of the returned plan corrects the differences. Cost: a
        read of the hosts. If consumers seem to have drifted, another read of these, and the driver
        is asked again.

        :param hosts: only these; by default all hosts of the driver
        :param older_than: unconfirmed claims count only if they are older than this; None: never
        :raises LedgerError: if the ledger cannot be reached
        """
        named = self._reconciler.named_hosts() if not hosts else dict.fromkeys(hosts)
        valid = [
            names.provider_name(host) for host, finding in named.items() if _is_updated(finding)
        ]
        return drift_of(self._ledger, self._driver, valid, older_than)

    def inventories(self, host: str) -> Inventories:
        """Return the inventories of a host with their usage, as ``ledger.inventories``.

        :raises NotFound: if the ledger does not have the host, and there is no record of it
        """
        try:
            return self._ledger.inventories(host)
        except exceptions.NotFound as error:
            if self._adopter is None or not error.is_about("provider"):
                raise
            return self._adopter.view(names.provider_name(host)).inventories

    def compute_node(self, host: str, consumer: str | None = None) -> ComputeNode:
        """Return a host as a compute node, bound to the ledger.

        A host of which there is only a record is not bound.

        :param consumer: the consumer of the node's usage; None: as ``ComputeNode.bind``
        :raises NotFound: if the ledger does not have the host, and there is no record of it
        """
        if self._adopter is not None:
            return self._adopter.view(names.provider_name(host), consumer)
        return ComputeNode.load(self._ledger, host, consumer)

    # --- use ---

    def update_usage(
        self, host: str, amounts: AmountsLike, consumer: str | None = None
    ) -> ComputeNode:
        """Add amounts to the usage of a host; negative ones are released. All or nothing.

        For an agent that knows the usage and not its consumers; others use :meth:`claim`. Only
        resources for which a compute node has columns can be updated.

        :param consumer: as for :meth:`compute_node`
        :returns: the node with its new usage
        :raises CapacityException: if it does not fit, or more is released than is used

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
        """Return a planned claim of a request on a host. Nothing is allocated or written.

        Amounts, cells, devices, traits and groups are decided together. ``allocate()`` of the
        returned claim allocates exactly the planned candidate, under the same limits. A host of
        which there is only a record is planned as it will be after its adoption. Cost: one read of
        the tree of the host, and a search.

        :param request: as for :meth:`claim`
        :param limits: as for :meth:`claim`
        :param ignore_maintenance: True to plan also on disabled providers
        :raises NoCandidates: (a ``CapacityException``) if it does not fit, with the reasons
        :raises NotFound: if the ledger does not have the host, and there is no record of it
        """
        name = names.provider_name(host)
        return self._claims.plan(consumer, name, request, ignore_maintenance, limits)

    def claim(
        self,
        consumer: str,
        host: str,
        request: RequestLike,
        **options: Unpack[ClaimOptions],
    ) -> HostClaim:
        """Allocate a request on a host to a consumer, completely or not at all.

        A repetition of the same request, in any process, returns the same claim. So does the
        request of a claim that a scheduler made for the consumer on this host, also as the
        destination of a move. Then the driver decides (:meth:`.Driver.admit`): it may refuse the
        claim, or choose other units of the same amounts; and the overhead is added
        (:meth:`.Driver.overhead`). If the driver refuses, only allocations of this call are
        released: a scheduler moves its claim to another host. In a ``with`` statement the claim is
        released if the block raises. Cost: one write; with placed amounts, one read of the tree.

        :param request: text, amounts, a request, a claim, or a candidate of a search. Resources
            that the host does not have itself, such as disk, are allocated from its pools
        :param options: as :class:`~resource_objects.host.tracker.claims.ClaimOptions` has them
        :raises NoCandidates: (a ``CapacityException``) if it does not fit, with the reasons
        :raises HostRefused: (a ``CapacityException``) if the driver refuses it
        :raises AlreadyExists: if the consumer has other allocations
        :raises NotFound: if the ledger does not have the host
        """
        return self._claims.claim(consumer, names.provider_name(host), request, options)

    def get_claim(self, consumer: str) -> HostClaim:
        """Return the claim of a consumer, whichever process made it. Cost: two small reads.

        :raises NotFound: if the consumer has no allocations
        """
        return self._claims.get_claim(names.consumer_name(consumer))

    def release(self, consumer: str) -> Claim:
        """Release all allocations of a consumer and of its move, in one transaction.

        The move is reverted by that.

        :returns: the released claim of the consumer
        :raises NotFound: if the consumer has no allocations
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
        """Begin a move of a consumer to a host: the destination is allocated to it.

        The source stays allocated, to the consumer of the migration, until :meth:`confirm_move` or
        :meth:`revert_move`, which any process may call. A repetition with the same migration
        returns the same move, also after a crash. During a resize within a host both sizes are
        allocated. A rebuild and a shelving are one step: their move is confirmed when this method
        returns. An unshelving has no source. Cost: a few small reads, then as :meth:`claim`.

        :param host: the destination; None for a shelving
        :param request: as for :meth:`claim`; None for the current one of the consumer, which is not
            possible for a resize, a rebuild and an unshelving. A live migration keeps page sizes
        :param migration: the id of the migration, a uuid, or a name from which one is made; None: a
            new id. A caller that repeats the call after a crash passes its own
        :param limits: as for :meth:`claim`, for the destination
        :param ignore_maintenance: as for ``ledger.move``
        :raises InvalidInput: if kind, host, request and the current host of the consumer do not fit
            together; if the migration began with other arguments
        :raises Conflict: if the consumer is moving by another migration
        :raises NotFound: if the consumer has no allocations
        :raises AlreadyExists: if a consumer to be unshelved has allocations
        :raises CapacityException: if it does not fit, with the reasons; then nothing is moved
        """
        name = names.consumer_name(consumer)
        to = None if host is None else names.provider_name(host)
        options = {
            "ignore_maintenance": ignore_maintenance,
            "limits": None if limits is None or to is None else {to: limits},
        }
        return self._claims.moves.begin(
            name, to, request, migration_id(name, migration), kind, options
        )

    def confirm_move(self, consumer: str, migration: str) -> Migration:
        """End a move at the destination: the source is released. A repetition changes nothing.

        :raises Conflict: if it was reverted
        :raises NotFound: if the migration is unknown, or its operation was removed since
        """
        name = names.consumer_name(consumer)
        return self._claims.moves.confirm(name, migration_id(name, migration))

    def revert_move(self, consumer: str, migration: str) -> Migration:
        """End a move at the source: it is allocated to the consumer again.

        A repetition changes nothing. An unshelving has no source: the consumer is released.

        :raises Conflict: if the move was confirmed; if an unshelved consumer is moving again; if it
            moved to another host since: then this call confirms the unshelving
        :raises NotFound: if the migration is unknown, or its operation was removed since; if the
            consumer has no allocations
        """
        name = names.consumer_name(consumer)
        return self._claims.moves.revert(name, migration_id(name, migration))

    def get_move(self, consumer: str) -> Migration:
        """Return the move of a consumer that is in progress.

        :raises NotFound: if the consumer is not moving
        """
        return self._claims.moves.get_move(names.consumer_name(consumer))

    def moves(self, host: str | None = None) -> tuple[Migration, ...]:
        """Return the moves in progress, by consumer, for an agent that starts again.

        Unshelved consumers are not included: an unshelving is a claim that is not confirmed yet.

        Cost: a read of the consumers of the host, and two small reads.

        :param host: only the moves from or to this one
        """
        return self._claims.moves.in_progress(host)


def _add_findings(reports: dict[str, HostReport], findings: Iterable[HostFinding]) -> None:
    for finding in findings:
        report = reports.get(finding.subject) or HostReport(finding.subject)
        reports[finding.subject] = dataclasses.replace(report, findings=(*report.findings, finding))


def _failures(
    call: Callable[[str], object], hosts: Iterable[str], kind: FindingKind
) -> Iterator[HostFinding]:
    """Call a function of the adopter for each host; yield the findings of the failed calls."""
    for host in hosts:
        try:
            call(host)
        except exceptions.DatabaseError:
            raise
        except Exception as error:  # records are foreign: the finding names the host
            yield HostFinding(host, kind, error=error)


def _is_updated(finding: HostFinding | None) -> bool:
    return finding is None or finding.kind is FindingKind.NAMED_TWICE
