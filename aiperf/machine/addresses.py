"""The addresses of this node: those by which others can reach it, and those that need no proxy."""

import socket
from collections.abc import Mapping

import psutil

from aiperf.host import this_host

THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


def own_addresses() -> list[str]:
    """List the addresses of this node for others: its name, then those of its interfaces.

    The loopback only if there is nothing else: on another node it is another machine.
    """
    found = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    ]
    outward = [address for address in found if not address.startswith(("127.", "::1", "fe80:", "169.254."))]
    return [this_host().name(), *outward] if outward else [this_host().name(), "127.0.0.1"]


def address_of(interface: str) -> str | None:
    """The first IPv4 address of an interface of this node; None if it has none."""
    addresses = psutil.net_if_addrs().get(interface, [])
    return next((address.address for address in addresses if address.family == socket.AF_INET), None)


def without_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables by which requests to this machine itself go through no proxy."""
    known = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    if known.strip() == "*":
        return {}
    names = [name.strip() for name in known.split(",") if name.strip()]
    both = ",".join(dict.fromkeys([*names, *THIS_MACHINE]))
    return {"no_proxy": both, "NO_PROXY": both}
