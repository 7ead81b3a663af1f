"""The columns of the tables of PCI devices: their help names them, too, and imports only this."""

#: The columns of the functions of a machine, and those in a table.
FACTS = (
    "address",
    "id",
    "name",
    "class",
    "type",
    "parent",
    "vfs",
    "most_vfs",
    "numa_cell",
    "driver",
    "interfaces",
    "vdpa",
    "mediated_types",
    "uuid",
    "taken_as",
    "rule",
    "skipped",
)
SEEN_FACTS = ("address", "name", "type", "numa_cell", "driver", "taken_as")
#: The columns of stored devices after their name, and those in a table.
KEPT = (
    "id",
    "name",
    "resource_class",
    "traits",
    "tags",
    "type",
    "parent",
    "numa_cell",
    "provider",
    "state",
    "gone",
    "disabled",
    "holders",
)
SEEN_KEPT = ("resource_class", "traits", "type", "numa_cell", "state", "holders")
