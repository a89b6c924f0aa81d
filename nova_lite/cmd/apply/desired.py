"""Things that a file describes. Pure: names of other things come from what was read of the cloud."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from nova_lite.cmd.apply import mark
from nova_lite.cmd.apply.document import Document, Mistake, Network, Router, Rule, Server
from nova_lite.cmd.apply.plan import Key, Place, Thing

#: Kinds whose names of others must not be those of the file, since users could not tell them apart.
_OWN_NAMES = ("project", "flavor", "key pair", "security group", "network", "router", "server", "volume")


def rule_name(group: str, direction: str, version: int, protocol: str, ports: str | None, remote: str | None) -> str:
    """Return the name of a rule, which is its content."""
    parts = (direction, f"IPv{version}", protocol, ports and f"ports {ports}", remote and f"remote {remote}")
    return f"{group}: {' '.join(part for part in parts if part)}"


def server_names(server: Server) -> list[str]:
    if server.count == 1:
        return [server.name]
    return [f"{server.name}-{number + 1}" for number in range(server.count)]


def wanted_names(document: Document) -> set[Key]:
    """Return kinds and names of all that the file names, so that the reader looks for them."""
    names: set[Key] = set()
    for kind, parts in _own_parts(document).items():
        names |= {(kind, part.name) for part in parts}
    for server in document.servers:
        names |= {("server", name) for name in server_names(server)}
        names |= {("flavor", server.flavor), ("image", server.image), ("key pair", server.key_pair or "")}
        names |= {("network", name) for name in server.networks}
        names |= {("security group", name) for name in server.security_groups}
        names.add(("server group", server.server_group or ""))
    names |= {("image", volume.image or "") for volume in document.volumes}
    names |= {("network", router.gateway or "") for router in document.routers}
    names |= {("network", address.pool) for address in document.floating_addresses}
    names |= {("project", project) for flavor in document.flavors for project in flavor.projects}
    names |= {("security group", rule.remote or "") for group in document.security_groups for rule in group.rules}
    return {key for key in names if key[1]}


def _own_parts(document: Document) -> dict[str, Iterable[Any]]:
    return {
        "project": document.projects,
        "flavor": document.flavors,
        "key pair": document.key_pairs,
        "server group": document.server_groups,
        "security group": document.security_groups,
        "network": document.networks,
        "subnet": [subnet for network in document.networks for subnet in network.subnets],
        "router": document.routers,
        "volume": document.volumes,
        "floating address": document.floating_addresses,
        "backup policy": document.backup_policies,
    }


class Builder:
    """Makes the things of a file. ``paths``: the part of the file that each comes from."""

    def __init__(self, document: Document, place: Place) -> None:
        self._document = document
        self._place = place
        self._own = {(kind, part.name) for kind, parts in _own_parts(document).items() for part in parts}
        self._own |= {("server", name) for server in document.servers for name in server_names(server)}
        self._first_networks = {name: part.networks[0] for part in document.servers for name in server_names(part)}
        self._subnets: dict[str, list[Key]] = {}
        self.things: dict[Key, Thing] = {}
        self.paths: dict[Key, str] = {}

    @functools.cached_property
    def _routes(self) -> dict[str, list[Key]]:
        return routes(self.things)

    def build(self) -> dict[Key, Thing]:
        """Return the things by key. Raises `Mistake` for a name that leads nowhere, or to several things."""
        document = self._document
        makers: list[tuple[str, Iterable[Any], Callable[[Any, str], None]]] = [
            ("projects", document.projects, self._project),
            ("flavors", document.flavors, self._flavor),
            ("key_pairs", document.key_pairs, self._key_pair),
            ("server_groups", document.server_groups, self._server_group),
            ("security_groups", document.security_groups, self._security_group),
            ("networks", document.networks, self._network),
            ("routers", document.routers, self._router),
            ("servers", document.servers, self._server),
            ("volumes", document.volumes, self._volume),
            ("floating_addresses", document.floating_addresses, self._floating_address),
            ("backup_policies", document.backup_policies, self._backup_policy),
        ]
        for section, parts, make in makers:
            for index, part in enumerate(parts):
                make(part, f"{section}[{index}]")
        return self.things

    # --- kinds

    def _project(self, project: Any, path: str) -> None:
        self._add("project", project.name, path, {"description": project.description})

    def _flavor(self, flavor: Any, path: str) -> None:
        values = {name: getattr(flavor, name) for name in ("ram", "vcpus", "disk", "ephemeral", "swap", "description")}
        values |= {"extra_specs": flavor.extra_specs, "public": not flavor.projects}
        values["projects"] = sorted(set(flavor.projects))
        if flavor.id is not None:
            values["id"] = flavor.id
        uses = [self._ref("project", name, f"{path}.projects") for name in flavor.projects]
        self._add("flavor", flavor.name, path, values, uses=uses)

    def _key_pair(self, key: Any, path: str) -> None:
        self._add("key pair", key.name, path, {"public_key": key.public_key})

    def _server_group(self, group: Any, path: str) -> None:
        self._add("server group", group.name, path, {"policy": group.policy})

    def _security_group(self, group: Any, path: str) -> None:
        self._add("security group", group.name, path, {"description": group.description, "name": group.name})
        for index, rule in enumerate(group.rules):
            self._rule(group.name, rule, f"{path}.rules[{index}]")

    def _rule(self, group: str, rule: Rule, path: str) -> None:
        ports = None if rule.ports is None else str(rule.ports)
        needs: list[Key | None] = [("security group", group)]
        remote_group = rule.remote if rule.remote and "/" not in rule.remote else None
        if remote_group is not None:
            needs.append(self._ref("security group", remote_group, f"{path}.remote"))
        name = rule_name(group, rule.direction, rule.ip_version, rule.protocol, ports, rule.remote)
        values = {"group": group, "direction": rule.direction, "ip_version": rule.ip_version, "ports": ports}
        values |= {"protocol": rule.protocol, "remote": rule.remote}
        self._add("security group rule", name, path, values, needs)

    def _network(self, network: Network, path: str) -> None:
        self._add("network", network.name, path, {"description": network.description, "name": network.name})
        for index, subnet in enumerate(network.subnets):
            values = {"network": network.name, "cidr": subnet.cidr, "dns": subnet.dns, "name": subnet.name}
            inner = path if network.cidr is not None else f"{path}.subnets[{index}]"
            self._add("subnet", subnet.name, inner, values, [("network", network.name)])
            self._subnets.setdefault(network.name, []).append(("subnet", subnet.name))

    def _router(self, router: Router, path: str) -> None:
        this: Key = ("router", router.name)
        self._add("router", router.name, path, {"description": router.description, "name": router.name})
        if router.gateway is not None:
            self._ref("network", router.gateway, f"{path}.gateway")
            self._add("router gateway", router.name, f"{path}.gateway", {"pool": router.gateway}, [this])
        for name in router.subnets:
            subnet = self._own_ref("subnet", name, f"{path}.subnets")
            self._add("router interface", f"{router.name}/{name}", f"{path}.subnets", {}, [this, subnet])

    def _server(self, server: Server, path: str) -> None:
        flavor = self._flavor_of(server, path)
        self._ref("image", server.image, f"{path}.image")
        group = server.server_group and self._ref("server group", server.server_group, f"{path}.server_group")
        key = server.key_pair and self._ref("key pair", server.key_pair, f"{path}.key_pair")
        values = {
            "flavor": flavor,
            "image": server.image,
            "key_pair": server.key_pair,
            "server_group": server.server_group,
            "metadata": server.metadata,
            "tags": sorted(set(server.tags)),
            "user_data": mark.digest(server.user_data),
            "description": server.description,
            "failed": False,
            "unconfirmed": False,
        }
        if server.availability_zone is not None:
            values["availability_zone"] = server.availability_zone
        if len(set(server.networks)) < len(server.networks):
            raise Mistake(f"server {server.name} has a network twice.", f"{path}.networks")
        for name in server_names(server):
            uses = [("flavor", server.flavor) if ("flavor", server.flavor) in self._own else None, key or None]
            uses += [self._port(name, network, server, path) for network in server.networks]
            self._add("server", name, path, {**values, "name": name}, [group or None], uses)
            for network in server.networks:
                port = f"{name}/{network}"
                self._add("interface", port, f"{path}.networks", {}, [("server", name), ("port", port)])

    def _port(self, server: str, network: str, part: Server, path: str) -> Key:
        """Add the port of a server on a network. It outlives the server's replacement, and so does its address."""
        groups = sorted(set(part.security_groups))
        uses = [self._ref("security group", group, f"{path}.security_groups") for group in groups]
        name, subnets = f"{server}/{network}", self._subnets.get(network, [])
        needs = [self._ref("network", network, f"{path}.networks"), *(subnets if len(subnets) == 1 else [])]
        uses += subnets
        self._add("port", name, f"{path}.networks", {"security_groups": groups}, needs, uses)
        return "port", name

    def _flavor_of(self, server: Server, path: str) -> dict[str, Any]:
        """Return name and sizes of a server's flavor."""
        self._ref("flavor", server.flavor, f"{path}.flavor")
        own = self.things.get(("flavor", server.flavor))
        values = self._place.flavors[server.flavor] if own is None else own.values
        sizes = {name: values[name] for name in ("vcpus", "ram", "disk", "ephemeral", "swap")}
        return {"name": server.flavor, **sizes}

    def _volume(self, volume: Any, path: str) -> None:
        values = {name: getattr(volume, name) for name in ("size", "image", "metadata", "description", "name")}
        values["failed"] = False
        if volume.image is not None:
            self._ref("image", volume.image, f"{path}.image")
        if volume.type is not None:
            values["type"] = volume.type
        self._add("volume", volume.name, path, values)
        if volume.server is not None:
            server = self._own_ref("server", volume.server, f"{path}.server")
            needs: list[Key | None] = [server, ("volume", volume.name)]
            self._add("attachment", volume.name, f"{path}.server", {"server": volume.server}, needs)

    def _floating_address(self, address: Any, path: str) -> None:
        self._ref("network", address.pool, f"{path}.pool")
        this: Key = ("floating address", address.name)
        self._add(*this, path, {"pool": address.pool, "description": address.description})
        if address.server is not None:
            server = self._own_ref("server", address.server, f"{path}.server")
            network = self._first_networks[server[1]]
            port, ways = f"{server[1]}/{network}", self._routes.get(network, [])
            if ("network", network) in self._own and not any(kind == "router gateway" for kind, _ in ways):
                sentence = f"floating address {address.name}: network {network} needs a router with a gateway."
                raise Mistake(sentence, f"{path}.server")
            needs: list[Key | None] = [this, ("port", port), *ways]
            self._add("association", address.name, f"{path}.server", {"port": port}, needs)

    def _backup_policy(self, policy: Any, path: str) -> None:
        schedule = {"every": policy.schedule.every, "minute": policy.schedule.minute}
        if schedule["every"] != "hour":
            schedule["hour"] = policy.schedule.hour or 0
        if schedule["every"] == "week":
            schedule["weekday"] = policy.schedule.weekday or "monday"
        retention = {"hourly": 0, "daily": 0, "weekly": 0, **policy.retention}
        targets = {"servers": [], "tags": sorted(set(policy.tags)), "all": policy.all}
        values = {"schedule": schedule, "retention": retention, "targets": targets}
        self._add("backup policy", policy.name, path, values)

    # --- names

    def _add(
        self,
        kind: str,
        name: str,
        path: str,
        values: dict[str, Any],
        needs: Iterable[Key | None] = (),
        uses: Iterable[Key | None] = (),
    ) -> None:
        key = (kind, name)
        if key in self.things:
            raise Mistake(f"{kind} {name} is there twice: give one another name.", path)
        if kind in _OWN_NAMES and self._place.others.get(key):
            raise Mistake(
                f"the cloud has a {kind} {name} that this file did not make: take another name, or remove that one.",
                path,
            )
        hard, soft = (frozenset(key for key in keys if key is not None) for keys in (needs, uses))
        self.things[key] = Thing(kind, name, msgspec.to_builtins(values), hard, soft)
        self.paths[key] = path

    def _ref(self, kind: str, name: str, path: str) -> Key | None:
        """Return the key of a thing of this file, or None for the only other thing with this name."""
        key = (kind, name)
        if key in self._own:
            return key
        others = self._place.others.get(key, [])
        if not others:
            raise Mistake(f"there is no {kind} {name}: name one of the file or of the cloud.", path)
        if len(others) > 1:
            raise Mistake(f"the cloud has {len(others)} things of kind {kind} with the name {name}.", path)
        return None

    def _own_ref(self, kind: str, name: str, path: str) -> Key:
        if (kind, name) not in self._own:
            raise Mistake(f"the file has no {kind} {name}: name one that it has.", path)
        return kind, name


def routes(things: Mapping[Key, Thing]) -> dict[str, list[Key]]:
    """Return the router interfaces and gateways that lead to each network: its floating addresses need them."""
    found: dict[str, list[Key]] = {}
    for key, thing in things.items():
        if key[0] == "router interface":
            ends = dict(thing.needs)
            gateway: Key = ("router gateway", ends["router"])
            network = things["subnet", ends["subnet"]].values["network"]
            found.setdefault(network, []).extend([key, gateway] if gateway in things else [key])
    return found
