"""How bandwidth is kept in a record of a host."""

from resource_objects.host.columns import CountColumn


class BandwidthColumn(CountColumn):
    """The columns of CUSTOM_SITE_NET_MBIT."""

    resource = "CUSTOM_SITE_NET_MBIT"
    total, used, ratio = names = ("net_mbit", "net_mbit_used", "net_mbit_allocation_ratio")
