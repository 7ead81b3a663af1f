"""A policy as a resource: at most one database per host."""

from resource_objects.resources import SlotResource

DATABASE_SLOT = SlotResource("CUSTOM_SITE_DATABASE_SLOT", description="One database per host")
