"""The resource tracker: hosts and ledger in step, and the claims of a host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from resource_objects import names
from resource_objects.exceptions import ProviderNotFound, ResourceObjectsError
from resource_objects.host.sync import beside_held
from resource_objects.host.tracker.claims import HostClaim, State
from resource_objects.host.tracker.driver import Driver
from resource_objects.host.tracker.findings import Finding, FindingKind, HostReport, Report
from resource_objects.providers import DefinitionChanges, Provider
from resource_objects.resources import Amounts

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger


class ResourceTracker:
    """Keeps the hosts of an agent and a ledger in step, and claims on those hosts.

    :param driver: what the agent says of its hosts
    :param on_change: called with a :class:`HostReport` when the definition of a host was changed
    """

    def __init__(
        self,
        ledger: Ledger,
        driver: Driver,
        *,
        on_change: Callable[[HostReport], None] | None = None,
    ) -> None:
        self._ledger = ledger
        self._driver = driver
        self._on_change = on_change

    # --- hosts ---

    def update_available_resource(self) -> Report:
        """Look at every host and bring the ledger in step; one wrong host stops no other."""
        reports = [self._update(names.provider_name(host)) for host in self._driver.hosts()]
        return Report(tuple(report for report in reports if report))

    def _update(self, host: str) -> HostReport:
        """Bring one host in step; tell whoever wants to know if anything changed."""
        try:
            report = HostReport(host, self._write(host))
        except ResourceObjectsError as error:
            return HostReport(host, findings=(Finding(host, FindingKind.REFUSED, error),))
        except Exception as error:  # a driver may fail in any way: it is told with its host
            return HostReport(host, findings=(Finding(host, FindingKind.DRIVER_FAILED, error),))
        if report and self._on_change is not None:
            self._on_change(report)
        return report

    def _write(self, host: str) -> DefinitionChanges:
        """Let the driver edit the tree of a host, and write what it changed."""

        def edited() -> Provider:
            tree = self._kept(host)
            self._driver.update_provider_tree(tree, self._driver.get_available_resource(host))
            return beside_held(self._ledger, tree).tree

        definitions = self._ledger.definitions
        done = definitions.write("define", host, None, lambda: definitions.compared([edited()]))
        return done.changes[0]

    def _kept(self, host: str) -> Provider:
        """Return a copy of the tree as it is kept."""
        try:
            return self._ledger.provider(host)
        except ProviderNotFound:
            return Provider(host)

    # --- claims ---

    def claim(self, consumer: str, host: str, amounts: Any) -> HostClaim:
        """Take amounts of a host for a consumer: all together, or none."""
        asked = Amounts(amounts)
        wanted = asked + Amounts(self._driver.overhead(asked))
        claim = self._ledger.claim(consumer, {host: wanted})
        return HostClaim(self._ledger, host, claim.consumer, wanted, State.HELD, claim)
