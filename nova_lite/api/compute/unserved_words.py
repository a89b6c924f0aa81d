"""How a 501 calls what was asked for, and what it advises instead: in the words of who typed the command."""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """``what`` begins the sentence that ends in "is not supported by this cloud"; ``instead`` is one of its own, or
    nothing where there is no other way."""

    what: str
    instead: str = ""


_NETWORK = "What a server may reach is decided by its network."
_ADDRESSES = "A server gets its addresses when it is created: name the networks there."

#: By server action.
ACTIONS: dict[str, Words] = {
    "addFixedIp": Words("Giving a server another fixed address", _ADDRESSES),
    "addFloatingIp": Words("Giving a server a floating address", _ADDRESSES),
    "addSecurityGroup": Words("Adding a security group to a server", _NETWORK),
    "createBackup": Words("A backup of a server", "Copy what matters out of the guest."),
    "createImage": Words("An image of a server", "Copy what matters out of the guest, or upload an image."),
    "os-migrateLive": Words("Live migration", "Create a server elsewhere, or evacuate it if its host is down."),
    "removeFixedIp": Words("Taking a fixed address from a server", _ADDRESSES),
    "removeFloatingIp": Words("Taking a floating address from a server"),
    "removeSecurityGroup": Words("Taking a security group from a server", _NETWORK),
    "shelve": Words("Shelving a server", "Stop it: a stopped server keeps its disk and its host."),
    "shelveOffload": Words("Shelving a server", "Stop it: a stopped server keeps its disk and its host."),
    "unshelve": Words("Unshelving a server", "A server that was stopped is started."),
}

_BAREMETAL = "Ask the bare metal service, if there is one."

#: By what `unserved.ROUTES` says a route is about.
INSTEAD: dict[str, str] = {
    "A floating address": _ADDRESSES,
    "A snapshot of a volume": "A server keeps its data on the disk that its flavor gives it.",
    "A volume": "A server keeps its data on the disk that its flavor gives it.",
    "Bare metal": _BAREMETAL,
    "Booting from volumes": "Servers are at /servers.",
    "Changing a server's interfaces": _ADDRESSES,
    "Changing security groups": _NETWORK,
    "Live migration": ACTIONS["os-migrateLive"].instead,
    "Volumes": "A server keeps its data on the disk that its flavor gives it.",
}
