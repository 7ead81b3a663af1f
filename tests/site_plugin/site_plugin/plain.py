"""Counted resources: a plug-in that only describes."""

from resource_objects.resources import IntegerResource

LICENCE = IntegerResource("CUSTOM_SITE_LICENCE", "software", "seats", "Seats of the site licence")
ENTITLEMENT = IntegerResource(
    "CUSTOM_SITE_CPU_ENTITLEMENT", "compute", "hundredths of a core", "CPU time that is promised"
)
BANDWIDTH = IntegerResource("CUSTOM_SITE_NET_MBIT", "network", "Mbit/s", "Bandwidth of a host")
POWER = IntegerResource("CUSTOM_SITE_WATT", "power", "W", "Power that a rack may draw")
WIDGET = IntegerResource("SITE_WIDGET", "widget", "widgets", "Widgets, without the CUSTOM_ prefix")
