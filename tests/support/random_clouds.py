"""Random content of the files of ``nova-lite apply``, and random changes of it."""

from __future__ import annotations

import copy
import random
from typing import Any

#: Networks, pools, images and flavors that the cloud of a test has already.
NETWORK, POOL = "private", "public"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBZkgYMJVdyBZKqH1IWNkEZkg7RvqrXtlgP9BzhZLdCt user"
SECTIONS = (
    "key_pairs", "server_groups", "security_groups", "networks", "routers", "servers", "volumes", "floating_addresses",
    "backup_policies",
)  # fmt: skip
POLICIES = ("soft-affinity", "soft-anti-affinity")


class Clouds:
    """Random clouds with images and flavors of these names. ``flavors``: the later ones are larger."""

    def __init__(self, rng: random.Random, images: list[str], flavors: list[str]) -> None:
        self.rng = rng
        self.images = images
        self.flavors = flavors

    def new(self, name: str) -> dict[str, Any]:
        """Return a document with some of each kind."""
        document: dict[str, Any] = {"cloud": name}
        for section in SECTIONS:
            for _ in range(self.rng.randint(0, 2)):
                self._add(document, section)
        return _repaired(document)

    def edited(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document with one to four changes: parts that come, go, or have other values."""
        changed = copy.deepcopy(document)
        for _ in range(self.rng.randint(1, 4)):
            section = self.rng.choice(SECTIONS)
            parts = changed.get(section, [])
            match self.rng.choice(("add", "remove", "change", "change")):
                case "add" if len(parts) < 3:
                    self._add(changed, section)
                case "remove" if parts:
                    parts.remove(self.rng.choice(parts))
                case "change" if parts:
                    index = self.rng.randrange(len(parts))
                    other = self._part(changed, section, parts[index]["name"])
                    kept = self.rng.sample(sorted(parts[index]), self.rng.randint(0, len(parts[index])))
                    parts[index] = other | {name: parts[index][name] for name in kept if name in other}
        return _repaired(changed)

    def _add(self, document: dict[str, Any], section: str) -> None:
        taken = {part["name"] for part in document.get(section, [])}
        (name, *_) = [f"{section[:3]}{number}" for number in range(9) if f"{section[:3]}{number}" not in taken]
        document.setdefault(section, []).append(self._part(document, section, name))

    def _part(self, document: dict[str, Any], section: str, name: str) -> dict[str, Any]:
        part: dict[str, Any] = getattr(self, f"_{section}")(document)
        return {"name": name, **part}

    def _names(self, document: dict[str, Any], section: str) -> list[str]:
        return [part["name"] for part in document.get(section, [])]

    def _some(self, names: list[str]) -> list[str]:
        return sorted(self.rng.sample(names, self.rng.randint(0, len(names))))

    def _one(self, names: list[str]) -> str | None:
        return self.rng.choice([None, *names])

    def _key_pairs(self, document: dict[str, Any]) -> dict[str, Any]:
        return {"public_key": f"{KEY}{self.rng.randint(1, 3)}"}

    def _server_groups(self, document: dict[str, Any]) -> dict[str, Any]:
        return {"policy": self.rng.choice(POLICIES)}

    def _security_groups(self, document: dict[str, Any]) -> dict[str, Any]:
        rules = [{"protocol": "tcp", "ports": port} for port in self.rng.sample([22, 80, "8000-8010"], 2)]
        remotes = [{"remote": name} for name in self._some([*self._names(document, "security_groups"), "10.0.0.0/8"])]
        return {"description": f"Group {self.rng.randint(1, 3)}", "rules": [*rules, *remotes]}

    def _networks(self, document: dict[str, Any]) -> dict[str, Any]:
        taken = {part["cidr"] for part in document.get("networks", [])}
        cidr = self.rng.choice([c for n in range(20) if (c := f"10.77.{n + 100}.0/24") not in taken])
        return {"cidr": cidr, "dns": self._some(["10.1.1.1", "10.1.1.2"]), "description": self._text()}

    def _routers(self, document: dict[str, Any]) -> dict[str, Any]:
        return {"gateway": self._one([POOL]), "subnets": self._some(self._names(document, "networks"))}

    def _servers(self, document: dict[str, Any]) -> dict[str, Any]:
        networks = self._some([*self._names(document, "networks"), NETWORK]) or [NETWORK]
        return {
            "flavor": self.rng.choice(self.flavors),
            "image": self.rng.choice(self.images),
            "networks": networks,
            "count": self.rng.choice([1, 1, 1, 2]),
            "key_pair": self._one(self._names(document, "key_pairs")),
            "security_groups": self._some([*self._names(document, "security_groups"), "default"]),
            "server_group": self._one(self._names(document, "server_groups")),
            "metadata": {name: self._text() for name in self._some(["role", "team"])},
            "tags": self._some(["blue", "green"]),
            "user_data": self._one(["#!/bin/sh\ntrue\n", "#!/bin/sh\nfalse\n"]),
            "description": self._text(),
        }

    def _volumes(self, document: dict[str, Any]) -> dict[str, Any]:
        servers = [part["name"] for part in document.get("servers", []) if part["count"] == 1]
        size, image = self.rng.randint(1, 3), self._one(self.images)
        metadata = {name: self._text() for name in self._some(["use", "owner"])}
        return {"size": size, "image": image, "server": self._one(servers), "metadata": metadata}

    def _floating_addresses(self, document: dict[str, Any]) -> dict[str, Any]:
        servers = [part["name"] for part in document.get("servers", []) if part["count"] == 1]
        return {"pool": POOL, "server": self._one(servers), "description": self._text()}

    def _backup_policies(self, document: dict[str, Any]) -> dict[str, Any]:
        return {
            "schedule": {"every": self.rng.choice(["hour", "day", "week"]), "minute": self.rng.randint(0, 3)},
            "retention": {"daily": self.rng.randint(1, 3)},
            "tags": ["blue"],
        }

    def _text(self) -> str:
        return self.rng.choice(["one", "two", "three"])


def _repaired(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without references that lead nowhere, which a user would have to remove, too."""
    names = {section: {part["name"] for part in document.get(section, [])} for section in SECTIONS}
    for group in document.get("security_groups", []):
        known = names["security_groups"] | {"10.0.0.0/8"}
        group["rules"] = [rule for rule in group["rules"] if rule.get("remote") in known | {None}]
    connected: set[str] = set()
    for router in document.get("routers", []):
        router["subnets"] = [name for name in router["subnets"] if name in names["networks"] - connected]
        connected.update(router["subnets"])
    for server in document.get("servers", []):
        known = names["networks"] | {NETWORK}
        server["networks"] = [name for name in server["networks"] if name in known] or [NETWORK]
        known = names["security_groups"] | {"default"}
        server["security_groups"] = [name for name in server["security_groups"] if name in known]
        for field, section in (("key_pair", "key_pairs"), ("server_group", "server_groups")):
            server[field] = server[field] if server[field] in names[section] else None
    singles = {part["name"]: part for part in document.get("servers", []) if part["count"] == 1}
    for part in [*document.get("volumes", []), *document.get("floating_addresses", [])]:
        part["server"] = part["server"] if part["server"] in singles else None
    routed = {name for router in document.get("routers", []) if router["gateway"] for name in router["subnets"]}
    taken: set[str] = set()
    for address in document.get("floating_addresses", []):
        server = address["server"]
        if server is not None and (singles[server]["networks"][0] not in routed | {NETWORK} or server in taken):
            address["server"] = None
        taken |= {address["server"]} - {None}
    return document
