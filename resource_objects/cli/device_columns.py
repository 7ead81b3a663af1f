"""The columns of the tables of PCI devices: their help names them, too, and imports only this."""

#: What is told of the functions of a machine, and what of that people see.
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
#: What is told of devices that are kept, after their name, and what of that people see.
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
