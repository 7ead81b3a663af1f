"""The commands about server groups: consumers that are to be on one host, or on different ones."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from resource_objects.cli import base
from resource_objects.names import natural_order

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger
    from resource_objects.providers import ServerGroup

_NAME = base.argument("name", "GROUP", "its name")


@base.command(
    _NAME,
    base.argument(
        "policy",
        "POLICY",
        "affinity or anti-affinity (strict), soft-affinity or soft-anti-affinity (if possible)",
    ),
    base.argument(
        "--max-per-host",
        "N",
        "with anti-affinity: the maximum number of members on a host (default: 1)",
        type=int,
        default=1,
    ),
)
def create_server_group(ledger: Ledger, args: Namespace) -> None:
    """Create a server group, unless it exists. Its policy never changes."""
    with base.misused():
        ledger.groups.ensure(args.name, args.policy, args.max_per_host)


@base.table(
    columns=("name", "policy", "max_per_host", "members"),
    empty="there are no server groups",
    reads=True,
)
def list_server_groups(ledger: Ledger, args: Namespace) -> base.Rows:
    """List the server groups, with their members."""
    return [
        (group.name, group.policy, _max_per_host(group), _in_order(group.members))
        for group in ledger.groups.list()
    ]


@base.record(
    _NAME,
    columns=("name", "uuid", "policy", "max_per_host", "generation", "members", "hosts"),
    reads=True,
)
def show_server_group(ledger: Ledger, args: Namespace) -> dict[str, Any]:
    """Show a server group, and on which hosts its members are."""
    group = ledger.groups.get(args.name)
    members = list(ledger.consumers(group=group.name)) if group.members else []
    providers = {allocation.provider for item in members for allocation in item.allocations}
    roots = {item.root for item in ledger.providers(name=providers)} if providers else set()
    hosts = roots.difference(item.name for item in ledger.pools.list())
    return {
        "name": group.name,
        "uuid": group.uuid,
        "policy": group.policy,
        "max_per_host": _max_per_host(group),
        "generation": group.generation,
        "members": _in_order(group.members),
        "hosts": _in_order(hosts),
    }


@base.command(_NAME)
def delete_server_group(ledger: Ledger, args: Namespace) -> None:
    """Remove a server group that has no members."""
    ledger.groups.remove(args.name)


def _in_order(names: Any) -> base.Cell:
    return base.listed(sorted(names, key=natural_order))


def _max_per_host(group: ServerGroup) -> base.Cell:
    return base.optional(group.max_per_host if group.policy == "anti-affinity" else None)
