"""Carries out the steps of a plan by requests, one after another, and waits until each is done."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from nova_lite.cmd.apply import mark
from nova_lite.cmd.apply.api import VOLUMES_AT_REST, Api, NotThere, is_at_work
from nova_lite.cmd.apply.desired import server_names
from nova_lite.cmd.apply.document import Document, Mistake
from nova_lite.cmd.apply.plan import Key, Op, Place, Step, Thing

#: Kinds that need requests of a simple form only: service, path and key of the body.
_COLLECTIONS = {
    "project": ("identity", "/projects", "project"),
    "flavor": ("compute", "/flavors", "flavor"),
    "key pair": ("compute", "/os-keypairs", "keypair"),
    "server group": ("compute", "/os-server-groups", "server_group"),
    "security group": ("network", "/security-groups", "security_group"),
    "security group rule": ("network", "/security-group-rules", "security_group_rule"),
    "network": ("network", "/networks", "network"),
    "subnet": ("network", "/subnets", "subnet"),
    "router": ("network", "/routers", "router"),
    "port": ("network", "/ports", "port"),
    "server": ("compute", "/servers", "server"),
    "volume": ("block_storage", "/volumes", "volume"),
    "floating address": ("network", "/floatingips", "floatingip"),
    "backup policy": ("compute", "/os-backup-policies", "backup_policy"),
}
#: Kinds that their services remove after the response.
_REMOVED_LATER = ("server", "volume")


class Unfinished(Mistake):
    """A step that was refused, or has failed. ``key``: the thing that it changes."""

    def __init__(self, op: Op, key: Key, sentence: str) -> None:
        super().__init__(f"cannot {op} {' '.join(key)}: {sentence}")
        self.key = key


class _Pending(NamedTuple):
    """A thing that its service still makes or removes. ``wait`` returns at the end, or raises `Mistake`."""

    thing: Thing
    op: Op
    wait: Callable[[], None]


class Writer:
    """Carries out steps. ``place``: what was read; its ids follow the steps."""

    def __init__(self, api: Api, document: Document, place: Place) -> None:
        self._api = api
        self._cloud = document.cloud
        self._place = place
        self._ids = dict(place.ids)
        self._user_data = {name: part.user_data for part in document.servers for name in server_names(part)}
        self._networks = {name: part.networks for part in document.servers for name in server_names(part)}
        self._pending: list[_Pending] = []
        self._relations: dict[str, tuple[Callable[[Thing], None], Callable[[Thing], None]]] = {
            "router gateway": (self._open_gateway, self._close_gateway),
            "router interface": (self._add_interface, self._remove_interface),
            "interface": (self._plug, self._unplug),
            "attachment": (self._attach, self._detach),
            "association": (self._associate, self._dissociate),
        }

    def do(self, step: Step) -> None:
        """Carry out one step. Raises `Unfinished` with the cloud's sentence.

        Servers and volumes are made and removed while the next steps are carried out. A step waits for the things that
        it has to do with.
        """
        thing = step.before if step.op == Op.DELETE else step.after
        assert thing is not None
        if not step.implied:
            self._finish(thing)
            try:
                self._do(step, thing)
            except Mistake as error:
                raise Unfinished(step.op, step.key, str(error)) from error

    def _do(self, step: Step, thing: Thing) -> None:
        if thing.kind in self._relations:
            create, delete = self._relations[thing.kind]
            (delete if step.op == Op.DELETE else create)(thing)
        elif step.op == Op.DELETE:
            self._delete(thing)
        elif step.op == Op.CREATE:
            self._create(thing)
        else:
            self._update(thing, step)

    def finish(self) -> None:
        """Wait until all things are made or removed. Raises `Unfinished` for the first that failed."""
        self._finish(None)

    def _finish(self, thing: Thing | None) -> None:
        """Wait for the things that have to do with this one, or for all."""
        for pending in [item for item in self._pending if thing is None or item.thing.is_related_to(thing)]:
            self._pending.remove(pending)
            try:
                pending.wait()
            except Mistake as error:
                raise Unfinished(pending.op, pending.thing.key, str(error)) from error

    # --- things

    def _delete(self, thing: Thing) -> None:
        service, path, _ = _COLLECTIONS[thing.kind]
        one = f"{path}/{self._ids.pop(thing.key)}"
        try:
            self._api.send(service, "DELETE", one)
        except NotThere as error:
            if not self._is_gone(service, one):
                raise error
        if thing.kind in _REMOVED_LATER:
            what = f"the removal of {thing.kind} {thing.name}"
            wait = functools.partial(self._api.wait, what, lambda: self._is_gone(service, one))
            self._pending.append(_Pending(thing, Op.DELETE, wait))

    def _is_gone(self, service: str, path: str) -> bool:
        try:
            self._api.send(service, "GET", path)
        except NotThere:
            return True
        return False

    def _create(self, thing: Thing) -> None:
        service, path, key = _COLLECTIONS[thing.kind]
        made = self._api.send(service, "POST", path, {key: self._body(thing), **self._hints(thing)})[key]
        self._ids[thing.key] = made["name"] if thing.kind == "key pair" else made["id"]
        if thing.kind == "flavor":
            self._set_flavor_parts(thing, {}, [])
        elif thing.kind == "server":
            self._pending.append(_Pending(thing, Op.CREATE, lambda: self._settle_server(thing)))
        elif thing.kind == "volume":
            self._pending.append(_Pending(thing, Op.CREATE, lambda: self._settle_volume(thing)))

    def _update(self, thing: Thing, step: Step) -> None:
        assert step.before is not None
        if thing.kind == "server":
            self._update_server(thing, step)
        elif thing.kind == "volume":
            self._update_volume(thing, step)
        elif thing.kind == "flavor":
            old = step.before.values
            self._change(thing, "description")
            self._set_flavor_parts(thing, old["extra_specs"], old["projects"])
        else:
            self._change(thing, *_CHANGEABLE[thing.kind])

    def _change(self, thing: Thing, *fields: str) -> None:
        """Send these fields of a thing's body."""
        service, path, key = _COLLECTIONS[thing.kind]
        body = self._body(thing)
        method = "PATCH" if service == "identity" else "PUT"
        changes = {name: body[name] for name in fields}
        self._api.send(service, method, f"{path}/{self._ids[thing.key]}", {key: changes})

    def _body(self, thing: Thing) -> dict[str, Any]:
        """Return the body of the request that makes a thing."""
        values = thing.values
        marked = mark.add(values.get("description", ""), self._cloud, thing.name)
        match thing.kind:
            case "project" | "security group" | "network" | "router":
                return {"name": thing.name, "description": marked}
            case "flavor":
                sizes = {name: values[name] for name in ("ram", "vcpus", "disk", "swap")}
                sizes |= {"OS-FLV-EXT-DATA:ephemeral": values["ephemeral"], "id": values.get("id", "auto")}
                sizes["os-flavor-access:is_public"] = values["public"]
                return {"name": thing.name, "description": marked, **sizes}
            case "key pair":
                return {"name": thing.name, "public_key": mark.add_to_key(values["public_key"], self._cloud)}
            case "server group" | "backup policy":
                return {"name": mark.add(thing.name, self._cloud, thing.name), **values}
            case "security group rule":
                return self._rule_body(values)
            case "subnet":
                network = self._id("network", values["network"])
                body = {"network_id": network, "ip_version": 4, "cidr": values["cidr"], "name": thing.name}
                return {**body, "dns_nameservers": values["dns"], "description": marked}
            case "port":
                server, _, network = thing.name.partition("/")
                groups = [self._id("security group", name) for name in values["security_groups"]]
                body = {"network_id": self._id("network", network), "security_groups": groups, "name": server}
                return {**body, "description": mark.add("", self._cloud, server)}
            case "server":
                return self._server_body(thing)
            case "volume":
                body = {"name": thing.name, "size": values["size"], "metadata": values["metadata"]}
                body |= {"volume_type": values["type"]} if "type" in values else {}
                body |= {"imageRef": self._id("image", values["image"])} if values["image"] else {}
                return {**body, "description": marked}
            case _:
                return {"floating_network_id": self._id("network", values["pool"]), "description": marked}

    def _rule_body(self, values: dict[str, Any]) -> dict[str, Any]:
        version, protocol, remote = values["ip_version"], values["protocol"], values["remote"]
        first, _, last = (values["ports"] or "").partition("-")
        body = {"security_group_id": self._id("security group", values["group"]), "direction": values["direction"]}
        body |= {"ethertype": f"IPv{version}", "description": mark.add("", self._cloud, "rule")}
        if protocol != "any":
            body["protocol"] = "ipv6-icmp" if (protocol, version) == ("icmp", 6) else protocol
        if first:
            body |= {"port_range_min": int(first), "port_range_max": int(last or first)}
        if remote is not None and "/" in remote:
            body["remote_ip_prefix"] = remote
        elif remote is not None:
            body["remote_group_id"] = self._id("security group", remote)
        return body

    def _set_flavor_parts(self, thing: Thing, specs: dict[str, str], projects: list[str]) -> None:
        """Bring extra specs and access from the given ones to those of the file."""
        path, new = f"/flavors/{self._ids[thing.key]}", thing.values
        for name in sorted(specs.keys() - new["extra_specs"].keys()):
            self._api.send("compute", "DELETE", f"{path}/os-extra_specs/{name}")
        if specs != new["extra_specs"] and new["extra_specs"]:
            self._api.send("compute", "POST", f"{path}/os-extra_specs", {"extra_specs": new["extra_specs"]})
        for action, names in (
            ("removeTenantAccess", set(projects) - set(new["projects"])),
            ("addTenantAccess", set(new["projects"]) - set(projects)),
        ):
            for name in sorted(names):
                self._api.send("compute", "POST", f"{path}/action", {action: {"tenant": self._id("project", name)}})

    # --- servers

    def _server_body(self, thing: Thing) -> dict[str, Any]:
        values = thing.values
        ports = [self._id("port", f"{thing.name}/{network}") for network in self._networks[thing.name]]
        body: dict[str, Any] = {
            "name": thing.name,
            "flavorRef": self._id("flavor", values["flavor"]["name"]),
            "imageRef": self._id("image", values["image"]),
            "networks": [{"port": port} for port in ports],
            "metadata": values["metadata"],
            "tags": values["tags"],
            "description": mark.add(values["description"], self._cloud, thing.name, values["user_data"]),
        }
        if values["key_pair"] is not None:
            body["key_name"] = values["key_pair"]
        if values.get("availability_zone") is not None:
            body["availability_zone"] = values["availability_zone"]
        if (user_data := self._user_data[thing.name]) is not None:
            body["user_data"] = base64.b64encode(user_data.encode()).decode()
        return body

    def _hints(self, thing: Thing) -> dict[str, Any]:
        """Return the part of a request that is beside the body: the group of a server."""
        group = thing.values.get("server_group") if thing.kind == "server" else None
        return {} if group is None else {"os:scheduler_hints": {"group": self._id("server group", group)}}

    def _update_server(self, thing: Thing, step: Step) -> None:
        path, changed = f"/servers/{self._ids[thing.key]}", set(step.changed)
        if "unconfirmed" in changed:
            self._act(thing, {"confirmResize": None})
        if changed & {"name", "description"}:
            self._change(thing, "name", "description")
        if "metadata" in changed:
            self._api.send("compute", "PUT", f"{path}/metadata", {"metadata": thing.values["metadata"]})
        if "tags" in changed:
            self._api.send("compute", "PUT", f"{path}/tags", {"tags": thing.values["tags"]})
        if changed & {"image", "key_pair", "user_data"}:
            body = self._server_body(thing)
            rebuild = {"imageRef": body["imageRef"], "description": body["description"]}
            rebuild |= {"key_name": body.get("key_name"), "user_data": body.get("user_data")}
            self._act(thing, {"rebuild": rebuild})
        if "flavor" in changed:
            self._act(thing, {"resize": {"flavorRef": self._id("flavor", thing.values["flavor"]["name"])}})
            if self._server(thing)["status"] != "VERIFY_RESIZE":
                raise Mistake("the resize failed, and the server has its old flavor: its events have the reason.")
            self._act(thing, {"confirmResize": None})

    def _act(self, thing: Thing, body: dict[str, Any]) -> None:
        self._api.send("compute", "POST", f"/servers/{self._ids[thing.key]}/action", body)
        self._settle_server(thing)

    def _server(self, thing: Thing) -> dict[str, Any]:
        found: dict[str, Any] = self._api.send("compute", "GET", f"/servers/{self._ids[thing.key]}")["server"]
        return found

    def _settle_server(self, thing: Thing) -> None:
        """Wait until a server is not being changed. Raises `Mistake` with its fault if it is in ERROR then."""

        def is_settled() -> bool:
            server = self._server(thing)
            if server["status"] == "ERROR" and server["OS-EXT-STS:task_state"] is None:
                raise Mistake(f"the server is in ERROR: {server.get('fault', {}).get('message', 'see its events')}")
            return not is_at_work(server)

        self._api.wait(f"the change of server {thing.name}", is_settled)

    # --- volumes

    def _update_volume(self, thing: Thing, step: Step) -> None:
        path, changed = f"/volumes/{self._ids[thing.key]}", set(step.changed)
        if changed & {"name", "description"}:
            self._change(thing, "name", "description")
        if "metadata" in changed:
            metadata = {"metadata": thing.values["metadata"]}
            self._api.send("block_storage", "PUT", f"{path}/metadata", metadata)
        if "type" in changed:
            retype = {"new_type": thing.values["type"], "migration_policy": "never"}
            self._api.send("block_storage", "POST", f"{path}/action", {"os-retype": retype})
            self._settle_volume(thing)
        if "size" in changed:
            extension = {"os-extend": {"new_size": thing.values["size"]}}
            self._api.send("block_storage", "POST", f"{path}/action", extension)
            self._settle_volume(thing)

    def _settle_volume(self, thing: Thing, *wanted: str) -> None:
        """Wait until a volume is not being changed, or until it has one of the wanted states."""

        def is_settled() -> bool:
            path = f"/volumes/{self._ids['volume', thing.name]}"
            status: str = self._api.send("block_storage", "GET", path)["volume"]["status"]
            if status.startswith("error"):
                raise Mistake(f"the volume has the status {status}.")
            return status in (wanted or VOLUMES_AT_REST)

        self._api.wait(f"the change of volume {thing.name}", is_settled)

    # --- relations

    def _open_gateway(self, thing: Thing) -> None:
        self._set_gateway(thing, {"network_id": self._id("network", thing.values["pool"])})

    def _close_gateway(self, thing: Thing) -> None:
        self._set_gateway(thing, None)

    def _set_gateway(self, thing: Thing, gateway: dict[str, str] | None) -> None:
        path = f"/routers/{self._id('router', thing.name)}"
        self._api.send("network", "PUT", path, {"router": {"external_gateway_info": gateway}})

    def _add_interface(self, thing: Thing) -> None:
        self._change_interfaces(thing, "add_router_interface")

    def _remove_interface(self, thing: Thing) -> None:
        self._change_interfaces(thing, "remove_router_interface")

    def _change_interfaces(self, thing: Thing, change: str) -> None:
        ends = dict(thing.needs)
        path = f"/routers/{self._id('router', ends['router'])}/{change}"
        self._api.send("network", "PUT", path, {"subnet_id": self._id("subnet", ends["subnet"])})

    def _plug(self, thing: Thing) -> None:
        server = self._server_of(thing)
        body = {"interfaceAttachment": {"port_id": self._id("port", thing.name)}}
        self._api.send("compute", "POST", f"/servers/{self._ids[server.key]}/os-interface", body)
        self._settle_server(server)

    def _unplug(self, thing: Thing) -> None:
        server, port = self._server_of(thing), self._id("port", thing.name)
        self._api.send("compute", "DELETE", f"/servers/{self._ids[server.key]}/os-interface/{port}")
        self._api.wait(
            f"the removal of port {thing.name} from its server",
            lambda: not self._api.send("network", "GET", f"/ports/{port}")["port"]["device_id"],
        )

    def _server_of(self, thing: Thing) -> Thing:
        return Thing("server", dict(thing.needs)["server"])

    def _attach(self, thing: Thing) -> None:
        server, volume = self._server_of(thing), self._id("volume", thing.name)
        path = f"/servers/{self._ids[server.key]}/os-volume_attachments"
        self._api.send("compute", "POST", path, {"volumeAttachment": {"volumeId": volume}})
        self._settle_volume(thing, "in-use")

    def _detach(self, thing: Thing) -> None:
        server, volume = self._server_of(thing), self._id("volume", thing.name)
        self._api.send("compute", "DELETE", f"/servers/{self._ids[server.key]}/os-volume_attachments/{volume}")
        self._settle_volume(thing, "available")

    def _associate(self, thing: Thing) -> None:
        self._set_port(thing, self._id("port", thing.values["port"]))

    def _dissociate(self, thing: Thing) -> None:
        self._set_port(thing, None)

    def _set_port(self, thing: Thing, port: str | None) -> None:
        path = f"/floatingips/{self._id('floating address', thing.name)}"
        self._api.send("network", "PUT", path, {"floatingip": {"port_id": port}})

    def _id(self, kind: str, name: str) -> str:
        """Return the id of a thing of the file, or of the other thing with this name."""
        key: Key = (kind, name)
        return self._ids[key] if key in self._ids else self._place.others[key][0]


#: Fields of bodies that can be changed in place, by kinds without further rules.
_CHANGEABLE = {
    "project": ("description",),
    "security group": ("name", "description"),
    "network": ("name", "description"),
    "subnet": ("name", "dns_nameservers"),
    "router": ("name", "description"),
    "port": ("security_groups",),
    "floating address": ("description",),
    "backup policy": ("schedule", "retention", "targets"),
}
