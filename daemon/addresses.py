"""Which IP addresses a document may come from.

Core in kind: an address in, a reason or nothing out; no look-ups. Rules: an address is allowed when it is globally
reachable; one that carries an IPv4 address inside (mapped, 6to4, Teredo, NAT64) is as good as that one; what the
standard library of an older Python does not know is listed here. Where clouds keep credentials is refused always.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

#: Instance metadata and the like: no document lies there, and what lies there are credentials.
_METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, Azure, Google, OpenStack
        "169.254.170.2",  # AWS ECS task credentials
        "169.254.170.23",  # AWS EKS pod identity
        "fd00:ec2::254",
        "fd00:ec2::23",
        "168.63.129.16",  # Azure's host agent, on a public address
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
    )
)
#: Special-purpose registries of IANA; some are missing in the `is_global` of Python 3.11 before 3.11.10.
_SPECIAL = tuple(
    ip_network(text)
    for text in (
        "192.0.0.0/24",  # IETF protocol assignments
        "192.88.99.0/24",  # 6to4 relays, withdrawn
        "::/96",  # IPv4-compatible, withdrawn
        "64:ff9b:1::/48",  # NAT64 within one's own network
        "100::/64",  # discard-only
        "2001::/23",  # IETF protocol assignments, Teredo aside
        "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fec0::/10",  # site-local, withdrawn
    )
)
_NAT64 = ip_network("64:ff9b::/96")


def refusal(text: str, *, allow_private: bool = False) -> str | None:
    """Why `text`, a numeric address, must not be dialled; None when it may.

    `allow_private` lets everything pass that one can be dialled on, but metadata addresses.
    """
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return f"{text} is no IP address"
    carried = _carried(address) if isinstance(address, IPv6Address) else ()
    for one in (address, *carried):
        if one in _METADATA:
            return f"{text} holds a machine's credentials"
        if one.is_multicast or one.is_unspecified or one == IPv4Address("255.255.255.255"):
            return f"{text} is no single host"
    if allow_private:
        return None
    judged = carried or (address,)
    if all(_is_public(one) for one in judged):
        return None
    return f"{text} is a private or reserved address"


def _carried(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that packets to `address` end up at."""
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _NAT64:
        return (IPv4Address(int(address) & 0xFFFF_FFFF),)
    return ()


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    special = any(address.version == network.version and address in network for network in _SPECIAL)
    return address.is_global and not address.is_reserved and not special
