"""Counted resources: a plug-in that only describes."""

from resource_objects.resources import IntegerResource

LICENCE = IntegerResource("CUSTOM_SITE_LICENCE", "software", "seats", "Seats of the site licence")
WIDGET = IntegerResource("SITE_WIDGET", "widget", "widgets", "Widgets, without the CUSTOM_ prefix")
