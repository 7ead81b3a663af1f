"""What an agent says of its hosts: the one class to subclass."""

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
    """What an agent says of its hosts, one or thousands. It knows nothing of who holds what.

    ================================  =============================================================
    :meth:`hosts`                     their names
    :meth:`get_available_resource`    what is known of one, as one value
    :meth:`update_provider_tree`      makes a tree of that; by default it is what the root has
    :meth:`identity`                  the uuid that the machine itself says it has
    :meth:`is_renamed`                whether a host of its uuid and another name is the same
    :meth:`overhead`                  what a consumer takes of a host besides what it asks for
    :meth:`admit`                    whether it takes what somebody claimed, or other units of it
    :meth:`consumers`                 who runs there
    :meth:`warnings`                   what is worth telling of one, and holds nothing up
    :meth:`invalid_inventories`       which inventories of one were invalid and left as they were
    :meth:`statistics`                what else a scheduler may want to know of it
    ================================  =============================================================

    Only the first two have to be there. Whatever a method raises is a finding about that host; the
    others are not held up.

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
        """Return the names of the hosts that this agent has now.

        A host that is named no more is left as it is in the ledger: another agent may have it.
        """

    @abc.abstractmethod
    def get_available_resource(self, host: str) -> Any:
        """Return what is known of a host, as one value; it is compared with what was said last.

        While it is equal to that, and nobody else changed the host in the ledger, there is nothing
        to do and :meth:`update_provider_tree` is not asked. None says that it cannot be told as a
        value: then that is asked each time.

        By default it is what ``Inventories`` takes, such as ``"VCPU=8,MEMORY_MB=16384"``: totals,
        reserved amounts, unit rules and ratios count, used figures are the ledger's. With a method
        of one's own that makes the tree it may be anything that can be compared and copied, such
        as a :class:`~resource_objects.host.machine.Machine`.
        """

    def update_provider_tree(self, tree: Provider, available: Any) -> Iterable[Move] | None:
        """Edit the tree of a host, by default so that the root has what is available.

        By default an inventory that is invalid, such as a negative total, leaves the one that the
        root has in the tree, and :meth:`invalid_inventories` returns the error. Only if all of
        them are invalid is the first error raised.

        What it makes of the tree follows from its two arguments. It may be called several times.

        Where something is counted elsewhere from now on, such as in GPUs that become providers of
        their own, it may return moves, one for each "inventory of class A on provider B has moved
        to provider C", with the consumers or units that are there where one place is split over
        several. Allocations follow in the same write. A move that happened before is none, so a
        driver may go on returning it
        (:func:`~resource_objects.providers.reshape_plan.inventory_moves` has the rules).

        :param tree: a copy of the tree as the ledger keeps it, of a host that is not kept an empty
            provider. What is not touched stays: providers, traits and aggregates of others
        :param available: what :meth:`get_available_resource` said just now
        """
        found, errors = valid_inventories(available, tree.inventories)
        tree.update(inventories=found)
        note_invalid(self, tree.name, errors)
        return None

    def invalid_inventories(self, host: str) -> Iterable[InvalidInput]:
        """Return the errors of single inventories in the last :meth:`update_provider_tree`.

        Each is a finding (``INVALID``) about the host, which is in step but for these classes.
        """
        errors: tuple[InvalidInput, ...] = self.__dict__.get("_invalid", {}).get(host, ())
        return errors

    def identity(self, host: str) -> str | None:
        """Return the uuid that the machine itself says it has, None if it says none.

        A new host gets it as its uuid. One whose uuid in the ledger is another was replaced under
        its name: a finding.
        """
        return None

    def is_renamed(self, host: str, before: str) -> bool:
        """Return whether a host that the ledger keeps by another name, with its uuid, is this one.

        Then it is renamed, and who holds something of it goes on holding it. By default nobody
        knows, for machines may be made with the same uuid: a finding.

        :param before: the name that the ledger has
        """
        return False

    def overhead(self, request: Amounts) -> Any:
        """Return what a consumer takes of a host besides the amounts that it asks for.

        By default nothing. Memory that the hypervisor itself needs for each guest, for example, as
        ``"MEMORY_MB=128"``. It is claimed with the rest, and given back with it.
        """
        return {}

    def admit(
        self, host: str, consumer: str, held: Mapping[str, Amounts]
    ) -> Mapping[str, Any] | None:
        """Look at what a consumer holds of a host before it starts there: the last word.

        By default it is accepted.

        :param held: ``{provider: amounts}`` as ``ledger.assigned`` tells it: which CPUs, pages and
            devices
        :returns: None to accept it; or what to hold instead, in the same form: as much of
            everything, of other units
        :raises HostRefused: if the host does not take it, with reasons for who chose it
        """
        return None

    def consumers(self, host: str) -> Mapping[str, Any] | None:
        """Return who runs on a host: ``{consumer: amounts}``; None where that is not known.

        The amounts are all that a consumer takes, its overhead too; None: only who it is counts.
        Who is migrated live may be named at both hosts. It is asked for twice where somebody seems
        to have drifted.
        """
        return None

    def warnings(self, host: str) -> Iterable[ResourceObjectsError]:
        """Return what is worth telling of a host although it can be reported as it is.

        Such as a device that cannot be given out, and why. It is asked for after
        :meth:`update_provider_tree`; each is a finding of this report and of the next ones, until
        that is asked again.
        """
        return ()

    def statistics(self, host: str) -> Iterable[Statistic] | None:
        """Return figures of a host beside what it has, such as how busy it is; None: it says none.

        All of them each time: one that is not said any more is gone. Those that changed are
        written, for all hosts at once; what is wrong with them is a finding, and what the host has
        is in step all the same.
        """
        return None


def note_invalid(driver: Driver, host: str, errors: Iterable[InvalidInput]) -> None:
    """Record the errors that a driver returns as the invalid inventories of a host from now on."""
    noted = driver.__dict__.setdefault("_invalid", {})  # subclasses need not call __init__
    noted[host] = tuple(errors)
    if not noted[host]:
        del noted[host]


def valid_inventories(
    given: Any, stored: Inventories
) -> tuple[Inventories, tuple[InvalidInput, ...]]:
    """Return the inventories that a report describes, and the errors of the invalid ones.

    An invalid inventory is replaced by the stored one, if there is one.

    :param given: what ``Inventories`` takes
    :raises InvalidInput: if it is neither text nor a mapping, or every inventory is invalid

    >>> found, errors = valid_inventories("VCPU=8,DISK_GB=-1", Inventories("VCPU=4,DISK_GB=9"))
    >>> print(found, *errors)
    VCPU=8,DISK_GB=9 DISK_GB total: got -1, expected an integer from 0 to 2147483647
    """
    try:
        return Inventories(given), ()
    except InvalidInput:
        if not isinstance(given, str | Mapping):
            raise
        pairs = text.pairs(given, "inventories") if isinstance(given, str) else given
        found: dict[str, Any] = {}
        errors: list[InvalidInput] = []
        for key, value in pairs.items():
            name = key.name if isinstance(key, Resource) else key
            one = f"{key}={value}" if isinstance(given, str) else {key: value}
            try:
                if name in found:
                    raise InvalidInput(
                        "repetition", "inventories", name, "each resource once"
                    ) from None
                found[name] = Inventories(one).get(name)
            except InvalidInput as error:
                errors.append(error)
                found.setdefault(name, stored.get(name))
        if len(errors) == len(pairs):
            raise
        there = {name: inventory for name, inventory in found.items() if inventory is not None}
        return Inventories(there), tuple(errors)
