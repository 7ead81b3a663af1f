"""A policy as a resource: at most one database per host."""

from resource_objects.resources import IntegerResource

DATABASE_SLOT = IntegerResource(
    "CUSTOM_SITE_DATABASE_SLOT", "abstract", "slots", "One database per host"
)
