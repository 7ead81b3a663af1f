"""What an agent says of its hosts: the one class to subclass."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import Any

from resource_objects.providers import Provider
from resource_objects.resources import Inventories


class Driver(abc.ABC):
    """What an agent says of its hosts, one or thousands. It knows nothing of who holds what.

    A driver for plain hosts says their names (:meth:`hosts`) and what each has
    (:meth:`get_available_resource`). One that knows more of a host edits its tree
    (:meth:`update_provider_tree`). Whatever a method raises is a finding about that host; the
    others are not held up.

    >>> class Lab(Driver):
    ...     def hosts(self):
    ...         return ["box"]
    ...     def get_available_resource(self, host):
    ...         return "VCPU=8"
    >>> tree = Provider("box", "VCPU=4")
    >>> Lab().update_provider_tree(tree)
    >>> print(tree)
    box: VCPU=8
    """

    @abc.abstractmethod
    def hosts(self) -> Iterable[str]:
        """Return the names of the hosts that this agent has now.

        A host that is named no more is left as it is in the ledger: another agent may have it.
        """

    @abc.abstractmethod
    def get_available_resource(self, host: str) -> Any:
        """Return what a host has: anything that ``Inventories`` takes, such as ``"VCPU=8"``.

        Totals, reserved amounts, unit rules and ratios count; used figures are the ledger's.
        """

    def update_provider_tree(self, tree: Provider) -> None:
        """Edit the tree of a host, by default so that it has what the driver says is available.

        :param tree: a copy of the tree as the ledger keeps it, of a host that is not kept an empty
            provider. What is not touched stays: providers, traits and aggregates of others
        """
        tree.update(inventories=Inventories(self.get_available_resource(tree.name)))

    def identity(self, host: str) -> str | None:
        """Return the uuid that the machine itself says it has, None if it says none.

        A host whose uuid in the ledger is another was replaced under its name: a finding.
        """
        return None
