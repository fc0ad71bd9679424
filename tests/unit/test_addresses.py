"""A document's URL must not become a way into the network that this host stands in."""

from __future__ import annotations

import pytest

from daemon.addresses import refusal


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "8.8.8.8",
        "2606:2800:220:1:248:1893:25c8:1946",
        "64:ff9b::5db8:d822",  # DNS64 of a public address
        "::ffff:93.184.216.34",
        "2002:5db8:d822::1",
    ],
)
def test_a_public_address_is_dialled(address: str) -> None:
    """Also one that carries a public IPv4 address, as on a host that has IPv6 alone."""
    assert refusal(address) is None


PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.1.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "192.0.0.8",
    "192.88.99.1",
    "240.0.0.1",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd12::1",
    "fec0::1",
    "2001:db8::1",
    "100::1",
    "64:ff9b:1::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "2002:7f00:1::1",
    "2002:c0a8:101::1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "2001:0:7f00:1::",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_refused_in_every_disguise(address: str) -> None:
    """Private, loopback, link-local, reserved; mapped, 6to4, NAT64, Teredo."""
    assert refusal(address) is not None


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "fd12::1", "169.254.1.1", "::ffff:10.0.0.1"])
def test_private_addresses_can_be_allowed(address: str) -> None:
    """A document server within one's own network is an ordinary thing."""
    assert refusal(address, allow_private=True) is None


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "fd00:ec2::254",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
    ],
)
def test_where_clouds_keep_credentials_is_never_dialled(address: str) -> None:
    """Allowing private addresses is no wish to hand out the instance's role."""
    assert "credentials" in str(refusal(address))
    assert "credentials" in str(refusal(address, allow_private=True))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "localhost", ""])  # noqa: S104 - refused
def test_what_is_no_single_host_is_never_dialled(address: str) -> None:
    """0.0.0.0 reaches this host itself."""
    assert refusal(address) is not None
    assert refusal(address, allow_private=True) is not None
