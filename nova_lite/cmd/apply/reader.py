"""Reads the things of a file in a cloud: marked things with their relations, and other things that the file names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nova_lite.cmd.apply import mark
from nova_lite.cmd.apply.api import VOLUMES_AT_REST, Api, NotThere, is_at_work
from nova_lite.cmd.apply.desired import routes, rule_name
from nova_lite.cmd.apply.document import Mistake
from nova_lite.cmd.apply.mark import Marked
from nova_lite.cmd.apply.plan import Key, Place, Thing

_SIZES = {"vcpus": "vcpus", "ram": "ram", "disk": "disk", "ephemeral": "OS-FLV-EXT-DATA:ephemeral", "swap": "swap"}


class Reader:
    """Reads one cloud. ``cloud``: name in the marks. ``wanted``: kinds and names of others to find."""

    def __init__(self, api: Api, cloud: str, wanted: set[Key]) -> None:
        self._api = api
        self._cloud = cloud
        self._wanted = wanted
        self._found: dict[Key, Thing] = {}
        self._ids: dict[Key, str] = {}
        self._others: dict[Key, list[str]] = {}
        self._flavors: dict[str, dict[str, Any]] = {}
        self._users: dict[Key, list[str]] = {}
        #: Names by kind and id: of marked things, and of others that the file names.
        self._names: dict[tuple[str, str], str] = {}

    def read(self) -> Place:
        """Return what is there, once no marked server or volume is being changed."""
        self._projects()
        self._read_flavors()
        self._key_pairs()
        groups = self._server_groups()
        self._security_groups()
        self._networks()
        self._routers()
        self._images()
        ports = list(self._api.listed("network", "/ports", "ports", project_id=self._api.project_id))
        self._router_interfaces(ports)
        self._servers(ports, groups)
        self._volumes()
        self._floating_addresses()
        self._backup_policies()
        return Place(self._found, self._ids, self._others, self._flavors, self._users)

    # --- kinds

    def _projects(self) -> None:
        try:
            projects = list(self._api.listed("identity", "/projects", "projects"))
        except NotThere:  # members see no list of projects
            return
        for item, marked in self._own("project", projects):
            self._add("project", marked.name, item["id"], {"description": marked.text})

    def _read_flavors(self) -> None:
        flavors = list(self._api.listed("compute", "/flavors/detail", "flavors", is_public="None"))
        for item in flavors:
            self._flavors[item["name"]] = {name: item[field] or 0 for name, field in _SIZES.items()}
        for item, marked in self._own("flavor", flavors):
            public = bool(item.get("os-flavor-access:is_public", True))
            path = f"/flavors/{item['id']}/os-flavor-access"
            access = [] if public else self._api.send("compute", "GET", path)["flavor_access"]
            projects = [self._name("project", entry["tenant_id"]) for entry in access]
            values = {"id": item["id"], "public": public, "projects": sorted(projects), "description": marked.text}
            values |= {"extra_specs": item.get("extra_specs", {}), **self._flavors[item["name"]]}
            self._add("flavor", marked.name, item["id"], values, uses=self._keys("project", projects))
        named = {name for kind, name in self._wanted if kind == "flavor"}
        self._flavors = {name: values for name, values in self._flavors.items() if name in named}

    def _key_pairs(self) -> None:
        for entry in self._api.listed("compute", "/os-keypairs", "keypairs"):
            item = entry["keypair"]
            found = mark.read_key(item["public_key"])
            if found is not None and found[1] == self._cloud:
                self._add("key pair", item["name"], item["name"], {"public_key": found[0]})
            else:
                self._other("key pair", item["name"], item["name"])

    def _server_groups(self) -> dict[str, str]:
        """Return the names of groups by the ids of their servers."""
        groups = list(self._api.listed("compute", "/os-server-groups", "server_groups"))
        for item, marked in self._own("server group", groups, "name"):
            self._add("server group", marked.name, item["id"], {"policy": item["policy"]})
        return {server: self._name("server group", item["id"]) for item in groups for server in item["members"]}

    def _security_groups(self) -> None:
        groups = list(self._list_of_network("security-groups", "security_groups"))
        for item, marked in self._own("security group", groups):
            values = {"description": marked.text, "name": item["name"]}
            self._add("security group", marked.name, item["id"], values)
        for item in groups:
            for rule in item["security_group_rules"]:
                marked_rule = self._mark_of(rule["description"])
                if marked_rule is not None and ("security group", item["id"]) in self._names:
                    self._rule(self._name("security group", item["id"]), rule)

    def _rule(self, group: str, rule: dict[str, Any]) -> None:
        first, last = rule["port_range_min"], rule["port_range_max"]
        ports = None if first is None else "-".join(str(end) for end in dict.fromkeys((first, last)))
        remote_group = rule["remote_group_id"] and self._name("security group", rule["remote_group_id"])
        remote, version = rule["remote_ip_prefix"] or remote_group, 6 if rule["ethertype"] == "IPv6" else 4
        protocol = {None: "any", "ipv6-icmp": "icmp", "icmpv6": "icmp"}.get(rule["protocol"], rule["protocol"])
        name = rule_name(group, rule["direction"], version, protocol, ports, remote)
        values = {"group": group, "direction": rule["direction"], "ip_version": version, "ports": ports}
        values |= {"protocol": protocol, "remote": remote}
        needs = {("security group", group), *self._keys("security group", [remote_group])}
        self._add("security group rule", name, rule["id"], values, needs)

    def _networks(self) -> None:
        networks = list(self._api.listed("network", "/networks", "networks"))
        mine = [item for item in networks if item["project_id"] == self._api.project_id]
        for item in networks:
            if item not in mine:
                self._other("network", item["name"], item["id"])
        for item, marked in self._own("network", mine):
            values = {"description": marked.text, "name": item["name"]}
            self._add("network", marked.name, item["id"], values)
        for item, marked in self._own("subnet", self._list_of_network("subnets", "subnets")):
            network = self._name("network", item["network_id"])
            values = {"network": network, "cidr": item["cidr"], "dns": item["dns_nameservers"], "name": item["name"]}
            self._add("subnet", marked.name, item["id"], values, self._keys("network", [network]))

    def _routers(self) -> None:
        for item, marked in self._own("router", self._list_of_network("routers", "routers")):
            values = {"description": marked.text, "name": item["name"]}
            self._add("router", marked.name, item["id"], values)
            if gateway := item["external_gateway_info"]:
                pool = self._name("network", gateway["network_id"])
                self._add("router gateway", marked.name, None, {"pool": pool}, {("router", marked.name)})

    def _router_interfaces(self, ports: Iterable[dict[str, Any]]) -> None:
        for port in ports:
            router = self._names.get(("router", port["device_id"]))
            if port["device_owner"] == "network:router_interface" and router is not None:
                for subnet in self._subnets_of(port):
                    needs = {("router", router), subnet}
                    self._add("router interface", f"{router}/{subnet[1]}", None, {}, needs)
            elif self._mark_of(port["description"]) is None and port["device_owner"] != "network:dhcp":
                used = self._keys("network", [self._name("network", port["network_id"])])
                groups = [self._name("security group", group) for group in port["security_groups"]]
                for key in [*used, *self._subnets_of(port), *self._keys("security group", groups)]:
                    self._use(key, f"port {port['id']}")

    def _use(self, key: Key, user: str) -> None:
        self._users.setdefault(key, []).append(user)

    def _subnets_of(self, port: dict[str, Any]) -> list[Key]:
        names = [self._name("subnet", address["subnet_id"]) for address in port["fixed_ips"]]
        return sorted(self._keys("subnet", names))

    def _images(self) -> None:
        for _, name in sorted(key for key in self._wanted if key[0] == "image"):
            for item in self._api.listed("image", "/images", "images", name=name):
                self._other("image", name, item["id"])

    def _servers(self, ports: list[dict[str, Any]], groups: dict[str, str]) -> None:
        self._api.wait("a server's change", lambda: not any(map(is_at_work, self._marked_servers())))
        for item, marked in self._own("server", self._list_of_servers()):
            values = self._server_values(item, marked)
            group = values["server_group"] = groups.get(item["id"])
            uses = self._keys("flavor", [values["flavor"]["name"]]) | self._keys("key pair", [item["key_name"]])
            self._add("server", marked.name, item["id"], values, self._keys("server group", [group]), uses)
        for port, marked in self._own("port", ports):
            network = self._name("network", port["network_id"])
            name, server = f"{marked.name}/{network}", self._names.get(("server", port["device_id"]))
            groups_of = sorted(self._name("security group", group) for group in port["security_groups"])
            needs = {*self._keys("network", [network]), *self._subnets_of(port)}
            values = {"security_groups": groups_of}
            self._add("port", name, port["id"], values, needs, self._keys("security group", groups_of))
            if server == marked.name:
                self._add("interface", name, port["id"], {}, {("server", server), ("port", name)})
                self._found["server", server] = _using(self._found["server", server], ("port", name))

    def _server_values(self, item: dict[str, Any], marked: Marked) -> dict[str, Any]:
        flavor = item["flavor"]
        is_failed = item["status"] == "ERROR" and item.get("OS-SRV-USG:launched_at") is None
        return {
            "name": item["name"],
            "flavor": {
                "name": flavor["original_name"],
                **{name: int(flavor[name]) for name in ("vcpus", "ram", "disk", "ephemeral", "swap")},
            },
            "image": item["image"] and self._name("image", item["image"]["id"]),
            "key_pair": item["key_name"],
            "availability_zone": item["OS-EXT-AZ:availability_zone"],
            "metadata": item["metadata"],
            "tags": sorted(item["tags"]),
            "user_data": marked.digest,
            "description": marked.text,
            "failed": is_failed,
            "unconfirmed": item["status"] == "VERIFY_RESIZE",
        }

    def _list_of_servers(self) -> Iterator[dict[str, Any]]:
        return self._api.listed("compute", "/servers/detail", "servers")

    def _marked_servers(self) -> list[dict[str, Any]]:
        return [item for item in self._list_of_servers() if self._mark_of(item["description"])]

    def _volumes(self) -> None:
        def volumes() -> Iterator[dict[str, Any]]:
            return self._api.listed("block_storage", "/volumes/detail", "volumes")

        def at_rest() -> bool:
            mine = [item for item in volumes() if self._mark_of(item["description"])]
            return all(item["status"] in VOLUMES_AT_REST or item["status"].startswith("error") for item in mine)

        self._api.wait("a volume's change", at_rest)
        for item, marked in self._own("volume", volumes()):
            image = item.get("volume_image_metadata", {}).get("image_id")
            values = {"size": item["size"], "type": item["volume_type"], "metadata": item["metadata"]}
            values |= {"image": image and self._name("image", image), "description": marked.text}
            values |= {"name": item["name"], "failed": item["status"] == "error"}
            self._add("volume", marked.name, item["id"], values)
            for attachment in item["attachments"]:
                if server := self._names.get(("server", attachment["server_id"])):
                    needs = {("volume", marked.name), ("server", server)}
                    self._add("attachment", marked.name, attachment["server_id"], {"server": server}, needs)
                else:
                    self._use(("volume", marked.name), f"server {attachment['server_id']}")

    def _floating_addresses(self) -> None:
        ways = routes(self._found)
        ports = {self._ids[key]: key[1] for key in self._found if key[0] == "port"}
        for item, marked in self._own("floating address", self._list_of_network("floatingips", "floatingips")):
            values = {"pool": self._name("network", item["floating_network_id"]), "description": marked.text}
            self._add("floating address", marked.name, item["id"], values)
            if port := ports.get(item["port_id"] or ""):
                needs = {("floating address", marked.name), ("port", port), *ways.get(port.partition("/")[2], ())}
                self._add("association", marked.name, None, {"port": port}, needs)

    def _backup_policies(self) -> None:
        try:
            policies = list(self._api.listed("compute", "/os-backup-policies", "backup_policies"))
        except NotThere:  # a cloud of others
            return
        for item, marked in self._own("backup policy", policies, "name"):
            values = {name: item[name] for name in ("schedule", "retention", "targets")}
            values["targets"] = {**values["targets"], "tags": sorted(values["targets"]["tags"])}
            self._add("backup policy", marked.name, item["id"], values)

    # --- names and marks

    def _list_of_network(self, path: str, key: str) -> Iterator[dict[str, Any]]:
        return self._api.listed("network", f"/{path}", key, project_id=self._api.project_id)

    def _mark_of(self, text: str | None) -> Marked | None:
        found = mark.read(text)
        return found if found is not None and found.cloud == self._cloud else None

    def _own(
        self, kind: str, items: Iterable[dict[str, Any]], field: str = "description"
    ) -> Iterator[tuple[dict[str, Any], Marked]]:
        """Yield marked things with what the mark says, and remember the names of others."""
        for item in items:
            marked = self._mark_of(item.get(field))
            if marked is not None:
                yield item, marked
            else:
                self._other(kind, item.get("name", ""), item["id"])

    def _other(self, kind: str, name: str, id: str) -> None:
        if (kind, name) in self._wanted:
            self._others.setdefault((kind, name), []).append(id)
            self._names[kind, id] = name

    def _add(
        self,
        kind: str,
        name: str,
        id: str | None,
        values: dict[str, Any],
        needs: Iterable[Key] = (),
        uses: Iterable[Key] = (),
    ) -> None:
        key = (kind, name)
        if key in self._found:
            raise Mistake(f"the cloud has two things with the mark of {kind} {name}: delete one, and repeat.")
        self._found[key] = Thing(kind, name, values, frozenset(needs), frozenset(uses))
        if id is not None:
            self._ids[key] = id
            self._names[kind, id] = name

    def _name(self, kind: str, id: str) -> str:
        """Return the name of a thing. An unknown one has its id."""
        return self._names.get((kind, id), id)

    def _keys(self, kind: str, names: Iterable[str | None]) -> set[Key]:
        """Return the keys of marked things with these names."""
        return {(kind, name) for name in names if name is not None and (kind, name) in self._found}


def _using(thing: Thing, key: Key) -> Thing:
    return Thing(thing.kind, thing.name, thing.values, thing.needs, thing.uses | {key})
