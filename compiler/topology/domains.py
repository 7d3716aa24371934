"""NVLink domains: which hosts of a rack share one."""

from __future__ import annotations


def domain_names(rack: str, hosts: list[str], hosts_per_domain: int) -> list[str]:
    """The domain of every host of a rack, in the order given.

    Where a domain ends at the host, its name is the host's. Else the rack is cut, in order, into
    domains of ``hosts_per_domain``: ``<rack>`` if that makes one, ``<rack>.0``, ``<rack>.1``, ...
    if it makes more.
    """
    if hosts_per_domain <= 1:
        return hosts
    if len(hosts) <= hosts_per_domain:
        return [rack] * len(hosts)
    return [f"{rack}.{place // hosts_per_domain}" for place in range(len(hosts))]
