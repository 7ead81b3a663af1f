"""A site in a file: machines and their resources as YAML, applied to a ledger and exported from it.

::

    version: 1
    machines:
      lab-[0-5]:
        inventories: VCPU=64,MEMORY_MB=512000
        aggregates: [rack-1]
        children:
          /gpu[0-7]:
            inventories: PGPU=1
            traits: [CUSTOM_H100]
            split: halves
    pools:
      nfs:
        inventories: DISK_GB=100000
        aggregates: [rack-1]

A key is a name. ``[0-5]``, ``[00-12]`` and ``[0-3,7]`` are ranges: one entry describes several
equal providers. The name of a child that begins with ``/`` continues the name of the provider
above: ``lab-0/gpu0``. A backslash before a character removes its meaning: ``\\[``, ``\\/``. The
keys of an entry:

==================  ==============================================================================
``inventories``     text as :class:`~resource_objects.resources.Inventories` parses it, or a mapping
                    of classes: ``VCPU: 64``, ``VCPU: 64:reserved=2``, ``VCPU: {total: 64}``
``traits``          a list
``aggregates``      a list
``split``           the partitioning of a device: a word of a device rule, such as ``halves`` or
                    ``mig-h100-80gb`` (:mod:`resource_objects.host.device_rules`), or a mapping of
                    ``slices`` (``{CUSTOM_SLICE: 7}``) and ``partitions``
                    (``{CUSTOM_MIG_3G: {CUSTOM_SLICE: 3}}``)
``shares``          a list: ``VCPU uses 1 VCPU of /``. ``/`` is the machine, ``/x`` a provider whose
                    name continues that of the machine; without ``of`` it is the provider itself
``structured``      inventories with a structure: ``DEVICES: {classes: PGPU=1, body: ...}``, as an
                    export writes them
``disabled``        the reason why it is disabled: ``fan``, or ``{reason: fan, until: ...}`` with a
                    moment such as 2030-01-01T08:00Z; ``false`` or an empty value enables it
``children``        a mapping of the entries below
==================  ==============================================================================

Applying a file creates and changes the providers that it names. Everything else is unchanged: other
machines, other children, and of a named provider the values of missing keys. A key replaces its
whole value: ``traits`` lists all traits, and ``inventories`` with ``split``, ``shares`` and
``structured`` all inventories. ``prune`` removes everything that is not named; a prune by a file
that names no machine is refused.

The text may come from an untrusted source. Values are read as text or numbers as their place
requires, so ``no`` and ``007`` are names. Tags, aliases, repeated keys, and text that is too long
or nested too deeply are rejected, naming the line.

==============  ===================================================================================
``site``        Site: the content of a file; ``parts``: SitePart, an entry
``ranges``      names with ranges
``reading``     from text to entries; ``writing``: from definitions of providers to entries
``patterns``    the definitions of the machines of one entry, which differ in names only
``applying``    a site and a ledger: export, apply, plan
==============  ===================================================================================
"""

from __future__ import annotations

from resource_objects.site.applying import (
    BATCH,
    SiteResult,
    apply_site,
    count_pruned,
    export_site,
    plan_site,
)
from resource_objects.site.parts import SitePart
from resource_objects.site.site import Site

__all__ = [
    "BATCH",
    "Site",
    "SitePart",
    "SiteResult",
    "apply_site",
    "count_pruned",
    "export_site",
    "plan_site",
]
