"""The compute node: a host's record in the words of the field, and its inventories.

This is the adapter of the *resource-objects* specification: it turns the columns of Nova's
``compute_nodes`` into inventories and back, and saves them. What it is *not*: a place where usage
is kept. The ledger keeps it; a node is a view of one host.

    >>> from resource_objects.resources import Amounts
    >>> node = ComputeNode.from_row(
    ...     {"vcpus": 8, "vcpus_used": 3, "cpu_allocation_ratio": 2.0, "cpu_info": "{}"},
    ...     reserved="VCPU=1",
    ... )
    >>> request = Amounts("VCPU=4")
    >>> for resource, amount in request.items():
    ...     if node.inventories[resource].can_provide(amount):
    ...         print(node.inventories[resource].consume(amount))
    4
    >>> node.vcpus_used, node.changes()
    (7, {'vcpus_used': 7})

Three decisions that a reader of Nova's code may look for:

**Reserved.** In Nova's record the used figures include what the host keeps for itself. An inventory
has a figure of its own for that. So ``vcpus_used`` is the inventory's ``used + reserved``, and what
is reserved, which no column says, is a parameter of reading.

**disk_available_least** is a report: how much disk was free, at that moment, whatever the books
say. Nova's *compute-node-inventory* specification made it the ``max_unit`` of DISK_GB, a definition
written anew with each report, and one that a second claim passes as easily as the first; Nova's
scheduler takes the smaller of ``free_disk_gb`` and the report. Here it is a limit of this view: at
the moment of the report what may be used is what was used then plus what was free. Every decision
of the view keeps to it, also the sum of several, until the next report. It is in no inventory that
is handed out and in no definition, so a report writes nothing to a ledger.

**Ratios** are found by the rules of :mod:`resource_objects.host.ratios`; finding writes nothing.

**Cells.** What is in ``numa_topology`` is an inventory like the others, ``NUMA_TOPOLOGY``, read
when inventories are first asked for and written in the version it came in. It says where; it adds
nothing (D1): the counts are taken by themselves, before it or together with it; taken alone, it
takes those that this view did not take before:

    >>> from resource_objects.requests import Request
    >>> from resource_objects.resources.numa import HostCell, NUMATopologyInventory
    >>> cells = [HostCell(n, shared=range(4 * n, 4 * n + 4), memory_mb=8192) for n in (0, 1)]
    >>> node = ComputeNode(vcpus=8, vcpus_used=0, memory_mb=16384, memory_mb_used=0,
    ...                    numa_topology=NUMATopologyInventory(cells))
    >>> request = Request("VCPU=4,MEMORY_MB=4096,NUMA_TOPOLOGY=2:shared=4:memory=4096")
    >>> for resource, amount in request.resources.items():
    ...     if node.inventories[resource].can_provide(amount):
    ...         print(resource, node.inventories[resource].consume(amount))
    VCPU 4
    MEMORY_MB 4096
    NUMA_TOPOLOGY 2:shared=4:memory=4096:on=0;shared>0-3/1;shared>4-7
    >>> node.vcpus_used, node.memory_mb_used
    (4, 4096)

How the cells and the other columns go together, huge pages and dedicated CPUs above all, is told in
the module ``_compute_cell_counts``.

**Devices.** What is in ``pci_stats`` is an inventory too, ``PCI_DEVICES``. The column knows pools,
counts of free devices that are alike; so a node that was read answers yes or no, or that pools do
not tell, and nobody can take any of it, for nobody knows which. Where the devices are known, of a
ledger or because somebody stated them, they are taken like everything else, and the column says how
many of each kind are left. Cells and devices are decided together where they are asked together,
through ``inventories``:

    >>> from resource_objects.resources.pci import Device, PCIInventory
    >>> node.update_inventories({"PCI_DEVICES": PCIInventory([
    ...     Device("0000:5e:00.0", "10de", "2330", resource_class="PGPU", numa_node=1)])})
    True
    >>> request = Request(
    ...     "VCPU=2,NUMA_TOPOLOGY=1:shared=2:memory=512,PCI_DEVICES=PGPU@required")
    >>> taken = node.inventories.consume(request.resources)
    >>> taken["NUMA_TOPOLOGY"].host_cells, taken["PCI_DEVICES"].addresses
    (frozenset({1}), ('0000:5e:00.0',))

One by one, as in the loop above, a view of a consumer with a name keeps what it takes together;
others do not know whose cells are whose.

Not made for several threads at once, like every inventory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from resource_objects import base, exceptions, names
from resource_objects.host import _compute_ledger as ledgers
from resource_objects.host._compute_adapter import Adapter
from resource_objects.host._compute_columns import COLUMNS, DERIVED, DISK_REPORT, KINDS
from resource_objects.host._compute_foreign import (
    as_row_error,
    is_nova_object,
    row_of_mapping,
    row_of_nova,
    split,
    write,
)
from resource_objects.host._compute_kept import as_column, column_getter
from resource_objects.host._compute_ledger import Pending, SaveResult, unattributed
from resource_objects.host._compute_live import LiveInventories
from resource_objects.host._compute_numa import COLUMN
from resource_objects.host._compute_pci import COLUMN as DEVICES_COLUMN
from resource_objects.host._compute_record import read_reserved
from resource_objects.host._compute_tracking import UNSET
from resource_objects.host.ratios import read_ratios
from resource_objects.providers.backend import Operation
from resource_objects.resources import (
    Inventories,
    Inventory,
    Limits,
    Resource,
)

if TYPE_CHECKING:
    from resource_objects.ledger import Ledger

__all__ = ["ComputeNode", "SaveResult", "unattributed"]


@base.register
class ComputeNode(Adapter):
    """A host's record: columns as Nova names them, and inventories that they follow.

    ============  =================================================================================
    read          :meth:`from_row`, :meth:`from_nova`, :meth:`read`, :meth:`load`
    ask, take     :attr:`inventories` (live), :attr:`limits`, ``pending``
    adapt         :meth:`get_inventories`, :meth:`update_inventories`
    write back    :meth:`changes`, :meth:`write_to`, :meth:`to_row`
    ledger        :meth:`bind`, :meth:`save`, :meth:`reload`
    ============  =================================================================================

    Any field may be unset, as in Nova; reading one that is raises ``FieldNotSet``. A resource is
    in the inventories if its total is above 0 and its used figure is set: of what is unknown,
    nothing is given out.

    * ``vcpus``, ``memory_mb`` (MiB), ``local_gb`` (GiB), their ``*_used`` figures and ratios follow
      the inventories: they are read here and changed there;
    * ``free_ram_mb`` and ``free_disk_gb`` are computed when asked, may be negative, and are kept
      nowhere;
    * ``numa_topology`` follows ``NUMA_TOPOLOGY`` and, with it, ``PCPU``: the dedicated CPUs of its
      cells as a count. Where the column is unset, None or of no cells, there is neither;
    * ``pci_stats`` follows ``PCI_DEVICES``, which is not there where the column is unset, None or
      of no pools;
    * every other column is somebody else's and is carried: value and type come back as they were.
      ``other_columns`` holds those this library has no name for;
    * ``reserved``, ``ratios`` (given, not stated by the record), ``pending`` (used by this view and
      not saved, in units), ``pending_topologies`` and ``pending_devices`` (the same, assigned: they
      have no sum), ``disk_limit_gb``, ``loose_cpus`` and ``cell_ratios`` are ours; no record has
      them.

    Change tracking compares with what was read: what is changed and changed back is no change.
    Cost of consuming: about 25 microseconds, where a plain inventory takes one; of asking: one. A
    topology costs about 80 more than of a plain inventory, whatever the number of cells, and
    devices about 25; their JSON is made when the column is asked for.
    """

    # Version 1.0: Initial version
    # Version 1.1: cells: pending_topologies, loose_cpus, cell_ratios; numa_topology as an inventory
    # Version 1.2: devices: pending_devices; pci_stats as an inventory
    VERSION = "1.2"

    # --- reading ---

    @classmethod
    def from_row(
        cls, row: Any, *, reserved: Any = None, ratios: Any = None, initial_ratios: Any = None
    ) -> Self:
        """Return the node of a row of ``compute_nodes``; columns that it lacks are unset.

        :param row: a mapping of columns, SQLAlchemy's ``Row``, or a :class:`ComputeNode`, of which
            a copy that belongs to no ledger comes out
        :param reserved: what the host keeps for itself, such as ``"VCPU=1,MEMORY_MB=512"``: it is
            within the row's used figures
        :param ratios: allocation ratios that count whatever the row states, such as ``"VCPU=16"``
        :param initial_ratios: ratios where the row states none, instead of Nova's

        Cost: about 100 microseconds for a whole row.

        :raises InvalidRow: naming the column, its value and what was expected
        :raises InvalidInput: of a parameter that cannot be

        >>> ComputeNode.from_row({"vcpus": 8, "vcpus_used": "3"})
        Traceback (most recent call last):
        resource_objects.exceptions.InvalidRow: vcpus_used: got '3', expected an integer from 0 ...
        """
        if isinstance(row, ComputeNode):
            if reserved is None and row._has("reserved"):
                reserved = {name: row._own_reserved(kind) for name, kind in KINDS.items()}
            ratios = {**row.ratios, **read_ratios(ratios)}
            row = {**row.to_row(), **row._own_devices()}
        return cls._of_columns(row_of_mapping(row), reserved, ratios, initial_ratios)

    @classmethod
    def from_nova(
        cls, node: Any, *, reserved: Any = None, ratios: Any = None, initial_ratios: Any = None
    ) -> Self:
        """Return the node of a ``nova.objects.ComputeNode``; what is unset there is unset here.

        Columns are as Nova's own ``save`` would write them: ``stats``, ``supported_instances`` and
        ``pci_stats`` as JSON text. Cost: twice that of a row, and what Nova takes to put its PCI
        pools into words. Parameters and errors as :meth:`from_row`.
        """
        return cls._of_columns(row_of_nova(node), reserved, ratios, initial_ratios)

    @classmethod
    def read(
        cls, source: Any, *, reserved: Any = None, ratios: Any = None, initial_ratios: Any = None
    ) -> Self:
        """Return the node of a row, of Nova's object, or of a :class:`ComputeNode`.

        Parameters and errors as :meth:`from_row`.
        """
        foreign = is_nova_object(source) and not isinstance(source, ComputeNode)
        reader = cls.from_nova if foreign else cls.from_row
        return reader(source, reserved=reserved, ratios=ratios, initial_ratios=initial_ratios)

    @classmethod
    def _of_columns(
        cls, columns: Mapping[str, Any], reserved: Any, ratios: Any, initial_ratios: Any
    ) -> Self:
        values, others = split(columns)
        values["ratios"] = read_ratios(ratios)
        if reserved is not None:
            values["reserved"] = read_reserved(reserved)
        try:
            node = cls(**values, other_columns=others)
        except exceptions.InvalidInput as error:
            raise as_row_error(error) from error
        node._begin_with(read_ratios(initial_ratios, "initial_ratios"))
        node.obj_reset_changes()
        return node

    @classmethod
    def load(cls, ledger: Ledger, name: str, consumer: str | None = None) -> Self:
        """Return the node of a host of a ledger, bound to it (see :meth:`bind`).

        ``host`` and ``hypervisor_hostname`` are the provider's name, ``uuid`` its uuid. Used
        figures are what the ledger says is used, and the reserved. What the host has none of has
        total 0; what its children have is theirs. Cost: one read of the host's tree.

        :param name: name or uuid of the host; the node stays with that uuid when names move
        :raises InvalidInput: if the ledger is none, or the name cannot be one
        :raises ProviderNotFound: if there is no such host
        """
        ledgers.require_ledger(ledger)
        found = ledgers.read_host(ledger, names.provider_name(name))
        if found is None:
            raise exceptions.ProviderNotFound(name)
        kept = found.provider
        ratios: dict[str, Any] = {
            KINDS[name].ratio: float(inventory.allocation_ratio)
            for name, inventory in ledgers.counted_inventories(kept).items()
        }
        node = cls(host=kept.name, hypervisor_hostname=kept.name, uuid=kept.uuid, **ratios)
        node._attach(ledger, kept.name, consumer, found)
        node._rebase(Pending(), {})
        node.obj_reset_changes()
        return node

    # --- asking and taking ---

    @property
    def inventories(self) -> Inventories:
        """What there is, by resource, live: what is consumed there counts here.

        A resource of which there is none is not in it (``KeyError``), as in any ``Inventories``.
        ``min_unit`` is 1, ``max_unit`` the total and ``step_size`` 1, as Nova reports them, or what
        the ledger has. They are no columns: changed here, they hold for this view only.

        :raises InvalidRow: if ``numa_topology`` or ``pci_stats`` cannot be read
        """
        if self._live is None:
            self._live = LiveInventories(self._members({}))
        return self._live

    @property
    def limits(self) -> Limits:
        """The bounds besides the capacities, by resource.

        What the report of disk leaves; and of a record with huge pages, the memory that is not in
        them and what is used of them.
        """
        found = {name: self._limit_of(name) for name in KINDS}
        return Limits({name: limit for name, limit in found.items() if limit is not None})

    @property
    def free_ram_mb(self) -> int:
        """Memory left in MiB: total less used, as Nova computes it. Overcommit does not count."""
        return self.memory_mb - self.memory_mb_used

    @property
    def free_disk_gb(self) -> int:
        """Disk left in GiB: total less used, as Nova computes it. Overcommit does not count."""
        return self.local_gb - self.local_gb_used

    def get_inventories(self) -> dict[Resource, Inventory]:
        """Return copies of the inventories, by resource, to keep or to change.

        >>> node = ComputeNode(vcpus=8, vcpus_used=2, local_gb=0, local_gb_used=0)
        >>> [(str(kind), held.capacity, held.used) for kind, held in node.get_inventories().items()]
        [('VCPU', 32, 2)]
        """
        return {kind: inventory.obj_clone() for kind, inventory in self.inventories.items()}

    def update_inventories(self, inventories: Mapping[Any, Inventory | None]) -> bool:
        """Take over totals, reserved, ratios and used figures; return whether anything changed.

        Resources that are not named stay as they are. None says that there is none of it (any
        more): total 0. A used figure that differs is consumed or given back by this view, whatever
        the capacity says: the caller states a fact. Of ``NUMA_TOPOLOGY`` the cells and what is used
        of them are taken over, as a fact that is nobody's and not pending; its ratios are those of
        VCPU and MEMORY_MB. ``PCPU`` has as many as the cells. Of ``PCI_DEVICES`` likewise the
        devices and what is used of them, or pools; the column says what these come to.

        :raises InvalidInventory: for a resource that a compute node has no columns for, another
            kind of inventory, unit rules that no column says, other cells or devices or usage of
            them than the ledger has, or CPUs of cells taken by number only; nothing changed
        :raises UnknownResourceClass: for a resource that nobody knows

        >>> from resource_objects.resources import IntegerInventory
        >>> node = ComputeNode(memory_mb=1024, memory_mb_used=0)
        >>> node.update_inventories({"MEMORY_MB": IntegerInventory(2048, reserved=512)})
        True
        >>> node.memory_mb, node.memory_mb_used, node.free_ram_mb
        (2048, 512, 1536)
        """
        if not isinstance(inventories, Mapping):
            raise exceptions.InvalidInventory(
                "inventories", inventories, "a mapping of resources to inventories"
            )
        return self._take_over(inventories)

    # --- writing back ---

    def changes(self) -> dict[str, Any]:
        """Return ``{column: value}`` of what changed since it was read, derived columns too.

        Of a node that was made and not read, that is every column that is set. What was written
        somewhere is forgotten by ``obj_reset_changes()``, as in Nova.

        :raises CannotDowngrade: for cells that no version of ``numa_topology`` can say

        >>> node = ComputeNode.from_row({"memory_mb": 1024, "memory_mb_used": 512})
        >>> print(node.inventories.consume("MEMORY_MB=256"))
        MEMORY_MB=256
        >>> node.changes()
        {'memory_mb_used': 768, 'free_ram_mb': 256}
        """
        changed = self.obj_what_changed()
        found = {column: self._column(column) for column in COLUMNS if column in changed}
        if DEVICES_COLUMN in found and found[DEVICES_COLUMN] == self._read_as(DEVICES_COLUMN):
            del found[DEVICES_COLUMN]  # other devices, as many of each kind
        if "other_columns" in changed:
            found.update(self.other_columns)
        sources = {
            column: {KINDS[name].total, KINDS[name].used} for column, name in DERIVED.items()
        }
        found.update(self._derived(column for column in DERIVED if sources[column] & changed))
        return found

    def write_to(self, target: Any) -> None:
        """Set what changed, and nothing else, on a row (a mapping) or on Nova's object.

        Nova's own change tracking sees exactly these fields. Ratios are written as floats, which
        is what these columns are; of at most six places, they read back exactly.

        :raises InvalidRow: if the target is neither
        :raises InvalidField: for a changed column that Nova's object cannot be given
            (``supported_instances``, ``extra_resources``); nothing was set
        """
        write(target, self.changes())

    def to_row(self) -> dict[str, Any]:
        """Return every column that is set, the derived ones, and those carried without a name."""
        row = {column: self._column(column) for column in COLUMNS if self._has(column)}
        return {**row, **self._derived(DERIVED), **self.other_columns}

    def _column(self, column: str) -> Any:
        return as_column(self._value(column))

    def _read_as(self, column: str) -> Any:
        """Return what a column that changed held when it was read, ``UNSET`` if it was not."""
        return as_column(self._originals.get(column, UNSET))

    # --- the ledger ---

    def bind(
        self, ledger: Ledger, consumer: str | None = None, provider: str | None = None
    ) -> Self:
        """Make this node a view of a host of a ledger; return it.

        From now on the ledger says what is used: used figures become the ledger's, with what is
        pending on top. What a *record* said was used is not taken over: its consumers have claims,
        or they hold nothing. Totals, and reserved and ratios that were given or stated, stay this
        node's and are written by :meth:`save` where they differ; others become the ledger's. A
        host that the ledger does not know is made by the first save, with its cells, and with its
        devices if they are known; of pools nothing can be made. One that it knows is known
        by its uuid from now on: whoever has its name later is another machine. Cost: one read of
        the tree.

        :param consumer: who holds what this view consumes; by default the host's *unattributed*
            consumer (:func:`unattributed`)
        :param provider: name of the host in the ledger, by default ``hypervisor_hostname``, else
            ``host``
        :raises InvalidInput: if the ledger is none
        :raises InvalidName: if there is no name, or one that no provider or consumer can have
        :raises ProviderExists: if the provider of that name has another uuid than this node
        :raises CapacityException: if more is pending to be given back than is used there
        """
        ledgers.require_ledger(ledger)
        name = names.provider_name(provider if provider is not None else self._host_name())
        uuid = self._provider_uuid()
        found = ledgers.read_host(ledger, name)
        kept = None if found is None else found.provider
        if kept is not None:
            ledgers.refuse_other_uuid(kept, uuid)
        stated = self._stated()
        with self._all_or_nothing():
            self._attach(ledger, name, consumer, found)
            self._adopt_ratios(stated)
            self._rebase(self._pending, stated)
            if self._value(DISK_REPORT, None) is not None:
                self._set("disk_limit_gb", self._limit_by_report())
        self._refresh()
        return self

    @property
    def consumer(self) -> str:
        """Who holds what this view saves.

        :raises NotBound: if there is no ledger
        """
        return self._binding().consumer

    def save(self, *, operation: str | None = None) -> SaveResult:  # type: ignore[override]
        """Write what is pending to the ledger: usage as one guarded claim, the definition merged.

        Usage goes as deltas of this view's consumer (``ledger.adjust``), never as an absolute
        figure and never touching what another consumer holds. Totals, reserved and ratios that
        changed here are written to the host, and nothing else of it: children, traits, other
        classes and figures that others changed stay. Devices that were claimed here are in use
        afterwards (``allocated``). Carried columns go to :meth:`write_to`; the
        ledger has no place for them. With nothing pending, nothing is read or written. Afterwards
        the view is what the ledger says.

        Refused: nothing changed, in the ledger or here; what was pending still is. (With both
        usage and definition pending see the module ``_compute_ledger``.) After a lost connection
        call again: what was sent is not done twice. The ledger's unit rules bind all that a
        consumer with a name holds; the *unattributed* one stands for many, and each of its changes
        is judged by itself, when it is consumed.

        :param operation: id of the write of usage, for a caller that may have to repeat it in
            another process; use it for one change only
        :raises NotBound: if there is no ledger
        :raises CapacityException: if it does not fit, with who holds what, or gives back more than
            the consumer holds; for a consumer with a name, also if its devices are not near its
            cells
        :raises StaleDefinition: if a figure was changed here and by somebody else
        :raises ProviderNotFound: if the host is gone, even if another has its name now
        :raises ProviderExists: if the host was not there, and its name is another machine's now
        :raises LostConnection: if it is not known whether it was done
        """
        self._binding()
        doing = None if operation is None else names.uuid_text(operation)
        claim = self._send_again(doing)
        definition = self._save_definition()
        claim = self._send_pending(doing or Operation().id) or claim
        if claim is None and not definition:
            return SaveResult()
        self.reload()
        return SaveResult(claim, definition)

    def reload(self) -> None:
        """Read the host again; what was pending, and not saved, is dropped.

        :raises NotBound: if there is no ledger
        :raises ProviderNotFound: if the host is gone
        """
        self._count_anew(dataclasses.replace(self._read_again(), sent=None), Pending())

    def __str__(self) -> str:
        name = self._value("hypervisor_hostname", None) or self._value("host", None)
        try:
            return f"{name or 'compute node'}: {self.inventories}"
        except exceptions.InvalidRow as error:
            return f"{name or 'compute node'}: {error}"


ComputeNode.numa_topology = ComputeNode.numa_topology.getter(column_getter(COLUMN))
ComputeNode.pci_stats = ComputeNode.pci_stats.getter(column_getter(DEVICES_COLUMN))
