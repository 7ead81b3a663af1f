"""Driver: the base class of the drivers of an agent."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Any

from resource_objects.exceptions import InvalidInput, ResourceObjectsError
from resource_objects.providers import Provider
from resource_objects.providers.reshape import Move
from resource_objects.providers.statistics import Statistic
from resource_objects.resources import Amounts, Inventories, Resource, text


class Driver(abc.ABC):
    """Reports the hosts of an agent, one or thousands, and their resources, but no allocations.

    ================================  =============================================================
    :meth:`hosts`                     the names of the hosts
    :meth:`get_available_resource`    the resources of a host, as one value
    :meth:`update_provider_tree`      edits the tree of a host by that value
    :meth:`identity`                  the uuid that the machine reports
    :meth:`is_renamed`                whether a host with a known uuid has another name now
    :meth:`overhead`                  resources that a consumer uses in addition to its request
    :meth:`admit`                     admits or refuses a claim on a host, or changes its units
    :meth:`consumers`                 the consumers that run on a host
    :meth:`warnings`                  faults of a host that do not prevent a report
    :meth:`invalid_inventories`       the errors of single inventories, which stay as they were
    :meth:`statistics`                further figures of a host for schedulers
    ================================  =============================================================

    Only the first two are required. An exception of a method is a finding about its host and does
    not affect other hosts.

    >>> class Lab(Driver):
    ...     def hosts(self):
    ...         return ["box"]
    ...     def get_available_resource(self, host):
    ...         return "VCPU=8"
    >>> tree = Provider("box", "VCPU=4", traits=["CUSTOM_QUIET"])
    >>> Lab().update_provider_tree(tree, Lab().get_available_resource("box"))
    >>> print(tree, *tree.traits)
    box: VCPU=8 CUSTOM_QUIET
    """

    @abc.abstractmethod
    def hosts(self) -> Iterable[str]:
        """Return the names of the current hosts of the agent.

        A host that is no longer named stays in the ledger: another agent may have it.
        """

    @abc.abstractmethod
    def get_available_resource(self, host: str) -> Any:
        """Return the resources of a host as one value, which is compared with the previous one.

        If they are equal, and no other process changed the host in the ledger, the update skips the
        host without calling :meth:`update_provider_tree`. None: the resources cannot be reported as
        a value, so that method is called by every update.

        By default the value is one that ``Inventories`` accepts, such as
        ``"VCPU=8,MEMORY_MB=16384"``. Totals, reserved amounts, unit rules and ratios count; usage
        is ignored. A driver with its own :meth:`update_provider_tree` may return any value that can
        be compared and copied, such as a :class:`~resource_objects.host.machine.Machine`.
        """

    def update_provider_tree(self, tree: Provider, available: Any) -> Iterable[Move] | None:
        """Edit the tree of a host; by default, replace the inventories of its root.

        By default the stored inventory replaces an invalid one, such as one with a negative total,
        and :meth:`invalid_inventories` returns the error. If all inventories are invalid, the first
        error is raised.

        The result must depend only on the two arguments. The method may be called several times.

        If resources are counted elsewhere from now on, for example in GPUs that become providers,
        the method may return moves. Each describes one "inventory of class A on provider B has
        moved to provider C"; if it is split over several providers, with the consumers or units of
        each. Allocations are moved in the same write. A move that has happened before is ignored,
        so a driver may return it every time
        (:func:`~resource_objects.providers.reshape_plan.inventory_moves` has the rules).

        :param tree: a copy of the stored tree; of a new host an empty provider. Providers, traits
            and aggregates that are not edited stay
        :param available: the last result of :meth:`get_available_resource`
        """
        inventories, errors = valid_inventories(available, tree.inventories)
        tree.update(inventories=inventories)
        record_invalid(self, tree.name, errors)
        return None

    def invalid_inventories(self, host: str) -> Iterable[InvalidInput]:
        """Return the errors of single inventories in the last :meth:`update_provider_tree`.

        Each is a finding (``INVALID``) about the host, whose other classes are in step.
        """
        errors: tuple[InvalidInput, ...] = self.__dict__.get("_invalid", {}).get(host, ())
        return errors

    def identity(self, host: str) -> str | None:
        """Return the uuid that the machine reports, None if it reports none.

        It becomes the uuid of a new host. A host that is stored with another uuid was replaced
        under its name, which is a finding.
        """
        return None

    def is_renamed(self, host: str, before: str) -> bool:
        """Return True if a host whose uuid is stored with another name is the same machine.

        Then the stored host is renamed, with its allocations. By default it is a finding, because
        two machines may be made with the same uuid.

        :param before: the stored name
        """
        return False

    def overhead(self, request: Amounts) -> Any:
        """Return the amounts that a consumer uses of the host itself, in addition to its request.

        By default none. An example is ``"MEMORY_MB=128"`` for the hypervisor of each guest. The
        overhead is claimed and released with the request.
        """
        return {}

    def admit(
        self, host: str, consumer: str, assigned: Mapping[str, Amounts]
    ) -> Mapping[str, Any] | None:
        """Decide about a claim on a host before its consumer starts; by default, admit it.

        :param assigned: ``{provider: amounts}`` as ``ledger.assigned_amounts`` returns them, with
            CPUs, pages and devices
        :returns: None to admit the claim; or other units of the same amounts, in the same form
        :raises HostRefused: to refuse the claim, with the reason for the scheduler
        """
        return None

    def consumers(self, host: str) -> Mapping[str, Any] | None:
        """Return the consumers that run on a host, ``{consumer: amounts}``; None: not known.

        The amounts include the overhead; with None only the name is compared. During a live
        migration both hosts may report the consumer. The method is called again for hosts with
        possible drift.
        """
        return None

    def warnings(self, host: str) -> Iterable[ResourceObjectsError]:
        """Return faults of a host that do not prevent a report, such as an unusable device.

        The method is called after :meth:`update_provider_tree`. Each fault is a finding of this
        report and of the next ones, until the method is called again.
        """
        return ()

    def statistics(self, host: str) -> Iterable[Statistic] | None:
        """Return further figures of a host, such as its load; None: it has none.

        Each call returns all figures: one that is missing is removed. Changed figures of all hosts
        are written at once. An invalid figure is a finding, and the inventories are in step anyway.
        """
        return None


def record_invalid(driver: Driver, host: str, errors: Iterable[InvalidInput]) -> None:
    """Set the errors that a driver returns as the invalid inventories of a host."""
    recorded = driver.__dict__.setdefault("_invalid", {})  # subclasses need not call __init__
    recorded[host] = tuple(errors)
    if not recorded[host]:
        del recorded[host]


def valid_inventories(
    value: Any, stored: Inventories
) -> tuple[Inventories, tuple[InvalidInput, ...]]:
    """Return the valid inventories of a report, and the errors of the invalid ones.

    An invalid inventory is replaced by the stored one, if there is one.

    :param value: a value for ``Inventories``
    :raises InvalidInput: if it is neither text nor a mapping, or every inventory is invalid

    >>> valid, errors = valid_inventories("VCPU=8,DISK_GB=-1", Inventories("VCPU=4,DISK_GB=9"))
    >>> print(valid, *errors)
    VCPU=8,DISK_GB=9 DISK_GB total: got -1, expected an integer from 0 to 2147483647
    """
    try:
        return Inventories(value), ()
    except InvalidInput:
        if not isinstance(value, str | Mapping):
            raise
        pairs = text.pairs(value, "inventories") if isinstance(value, str) else value
        inventories: dict[str, Any] = {}
        errors: list[InvalidInput] = []
        for key, figures in pairs.items():
            name = key.name if isinstance(key, Resource) else key
            try:
                if name in inventories:
                    raise InvalidInput(
                        "repetition", "inventories", name, "each resource once"
                    ) from None
                single = f"{key}={figures}" if isinstance(value, str) else {key: figures}
                inventories[name] = Inventories(single).get(name)
            except InvalidInput as error:
                errors.append(error)
                inventories.setdefault(name, stored.get(name))
        if len(errors) == len(pairs):
            raise
        present = {name: count for name, count in inventories.items() if count is not None}
        return Inventories(present), tuple(errors)
