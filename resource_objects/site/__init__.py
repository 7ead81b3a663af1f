"""A site in a file: machines and what they have, as YAML that people write, and back.

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

A key is a name. ``[0-5]``, ``[00-12]`` and ``[0-3,7]`` stand for numbers: one entry for things that
are equal. A child whose name begins with ``/`` is called like what it is below, and then that:
``lab-0/gpu0``. A backslash takes what follows as it is: ``\\[``, ``\\/``. Each has:

==================  ==============================================================================
``inventories``     text as :class:`~resource_objects.resources.Inventories` parses it, or a mapping
                    of classes: ``VCPU: 64``, ``VCPU: 64:reserved=2``, ``VCPU: {total: 64}``
``traits``          a list
``aggregates``      a list
``split``           how a device is had in parts: a word of a device rule, such as ``halves`` or
                    ``mig-h100-80gb`` (:mod:`resource_objects.host.device_rules`), or a mapping of
                    ``slices`` (``{CUSTOM_SLICE: 7}``) and ``partitions``
                    (``{CUSTOM_MIG_3G: {CUSTOM_SLICE: 3}}``)
``shares``          a list: ``VCPU uses 1 VCPU of /``. ``/`` is the machine, ``/x`` what is called
                    like the machine and then that; without ``of`` it is the provider itself
``structured``      inventories with a structure: ``DEVICES: {classes: PGPU=1, body: ...}``, as an
                    export writes them
``disabled``        why it is out of service: ``fan``, or ``{reason: fan, until: ...}``, a moment
                    such as 2030-01-01T08:00Z; ``false`` or nothing: it is in service
``children``        a mapping of what is below
==================  ==============================================================================

What the file says is made so; what it does not name is left alone: other machines, other children,
and of a machine each key that is missing. What a key says, it says as a whole: ``traits`` are all
traits, and ``inventories`` with ``split``, ``shares`` and ``structured`` all there is. ``prune``
removes what is not named; a prune by a file that names no machine is refused.

The text is read from a stranger: values are text and numbers by the place they stand at and never
objects, so ``no`` and ``007`` are names; tags, anchors, a key that comes twice, and what is too
long or too deep are refused, naming the line. Source of the notation of ranges: the host lists of
Slurm and pdsh.

==============  ===================================================================================
``site``        Site: what a file says; ``parts``: its entries, and what each has
``ranges``      names with ranges
``reading``     from text to entries
``writing``     from trees to entries, and from entries to text
``trees``       the tree of a machine, as an entry says it beside what is kept
``patterns``    machines that are equal but for their names, worked out once
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
