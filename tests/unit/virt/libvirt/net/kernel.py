"""A kernel in memory: it carries out the commands with which realms are made, and shows devices in a directory."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import libvirt
import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.net import dhcp, namespaces, nft, realms

INSIDE = re.compile(r"--net=/run/netns/(.*)")


class Kernel:
    """Devices and namespaces of a machine, and its processes of dnsmasq.

    ``lines``: what ``ip`` has carried out, by namespace (None: the host's). ``broken``: part of a line that fails.
    ``tables``: texts for nft by namespace, in order. ``running``: realms by the names of processes. ``shown``: answers
    of other commands. ``commands``: all other commands. ``settings``: of the kernel's network, by namespace.
    """

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.net = path / "net"
        self.net.mkdir()
        self.namespaces: set[str] = set()
        self.inner: dict[str, dict[str, dict[str, Any]]] = {}
        self.lines: dict[str | None, list[str]] = {}
        self.tables: list[tuple[str | None, str]] = []
        self.running: dict[str, str | None] = {}
        self.broken: str | None = None
        self.shown: dict[str, str] = {}
        self.commands: list[str] = []
        self.settings: dict[str | None, list[str]] = {}
        monkeypatch.setattr(realms, "NET", str(self.net))
        monkeypatch.setattr(dhcp, "DIRECTORY", str(path / "dhcp"))
        monkeypatch.setattr(namespaces, "exists", lambda name: name in self.namespaces)
        monkeypatch.setattr(namespaces, "add", self._add_namespace)
        monkeypatch.setattr(namespaces, "remove", self._remove_namespace)
        monkeypatch.setattr(namespaces, "run", self.run)
        monkeypatch.setattr(namespaces, "set_up", lambda found, name=None: self.settings.update({name: [*found]}))
        monkeypatch.setattr(nft, "run", lambda text: self.tables.append((None, text)) or "")
        monkeypatch.setattr(nft, "apply", lambda text, name=None: self.tables.append((name, text)))
        monkeypatch.setattr(dhcp, "_INSTANCES", str(path / "max_user_instances"))
        (path / "max_user_instances").write_text("128\n")
        monkeypatch.setattr(dhcp, "run", lambda name, text, realm_id: self.running.setdefault(name, realm_id))
        monkeypatch.setattr(dhcp, "stop", lambda name: self.running.pop(name, None))
        monkeypatch.setattr(dhcp, "is_running", self.running.__contains__)

    def bridge(self, name: str, *members: str, alias: str = "") -> None:
        """Make a bridge as another program would."""
        (self.net / name / "brif").mkdir(parents=True)
        (self.net / name / "ifalias").write_text(alias)
        for member in members:
            (self.net / name / "brif" / member).touch()

    def run(self, *command: str, text: str = "") -> str:
        name = None
        if command[0] == "nsenter":
            found = INSIDE.fullmatch(command[1])
            assert found is not None
            name, command = found[1], command[3:]
        if command[:2] == ("ip", "-batch"):
            for line in text.splitlines():
                if self.broken is not None and self.broken in line:
                    raise exceptions.VirtDriverError(reason=f"ip: {line}")
                self.lines.setdefault(name, []).append(line)
                (self._carry_out if name is None else self._settle)(line.split(), name or "")
            return ""
        if name is not None and command[:4] == ("ip", "-json", "address", "show"):
            return json.dumps([self.inner[name][command[5]]])
        if "rule" in command:
            raise exceptions.VirtDriverError(reason="there is no such rule")
        self.commands.append(" ".join(command))
        return self.shown.get(" ".join(command), "")

    def _carry_out(self, words: list[str], _: str) -> None:
        match words:
            case ["link", "add", "name", device, "mtu", _, "type", "bridge", *_]:
                self.bridge(device)
            case ["link", "add", "name", device, "mtu", mtu, "type", "veth", "peer", "name", inner, *rest]:
                (self.net / device).mkdir()
                assert rest[-1] in self.namespaces
                link = {"mtu": int(mtu), "flags": [], "addr_info": []}
                self.inner.setdefault(rest[-1], {})[inner] = link
            case ["link", "set", "dev", device, "name", name]:
                (self.net / device).rename(self.net / name)
            case ["link", "set", "dev", device, *rest]:
                if "alias" in rest:
                    (self.net / device / "ifalias").write_text(rest[rest.index("alias") + 1])
                if "master" in rest:
                    (self.net / rest[rest.index("master") + 1] / "brif" / device).touch()
            case ["link", "delete", "dev", device]:
                shutil.rmtree(self.net / device)
                for member in self.net.glob(f"*/brif/{device}"):
                    member.unlink()

    def _settle(self, words: list[str], name: str) -> None:
        match words:
            case ["link", "set", "dev", device, "up"]:
                self.inner[name].setdefault(device, {})["flags"] = ["UP"]
            case ["link", "set", "dev", device, "mtu", mtu]:
                self.inner[name][device]["mtu"] = int(mtu)
            case ["address", verb, address, "dev", device, *_]:
                local, _, length = address.partition("/")
                item = {"local": local, "prefixlen": int(length), "scope": "global"}
                known = self.inner[name][device].setdefault("addr_info", [])
                (known.remove if verb == "delete" else known.append)(item)

    def _add_namespace(self, name: str) -> None:
        assert name not in self.namespaces
        self.namespaces.add(name)

    def _remove_namespace(self, name: str) -> None:
        self.namespaces.remove(name)
        self.inner.pop(name, None)

    def table_of(self, name: str | None, part: str) -> str:
        """Return the last text for a namespace that has this part."""
        return [text for where, text in self.tables if where == name and part in text][-1]


class Libvirt:
    """libvirtd with networks, by name. ``calls``: what was done with them."""

    def __init__(self) -> None:
        self.networks: dict[str, DefinedNetwork] = {}
        self.calls: list[str] = []

    def add(self, name: str, xml: str) -> None:
        self.networks[name] = DefinedNetwork(self, name, xml)

    def get(self) -> Libvirt:
        return self

    def networkLookupByName(self, name: str) -> DefinedNetwork | None:
        return self.networks.get(name)

    def connect_call(self, name: str, *arguments: Any) -> Any:
        if name == "listAllNetworks":
            return list(self.networks.values())
        assert name == "networkDefineXML"
        self.calls.append("define")
        found = re.search("<name>(.*)</name>", arguments[0])
        assert found is not None
        self.add(found[1], arguments[0])
        return self.networks[found[1]]

    def call(self, method: Any, *arguments: Any) -> Any:
        return method(*arguments)

    def call_unless(self, codes: tuple[int, ...], method: Any, *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except libvirt.libvirtError as error:
            if error.get_error_code() in codes:
                return None
            raise


class DefinedNetwork:
    """A network of libvirt."""

    def __init__(self, owner: Libvirt, name: str, xml: str) -> None:
        self._owner, self._name, self._xml = owner, name, xml
        self.is_active = False

    def name(self) -> str:
        return self._name

    def XMLDesc(self, flags: int) -> str:
        return self._xml

    def isActive(self) -> bool:
        return self.is_active

    def create(self) -> None:
        self._owner.calls.append("create")
        self.is_active = True

    def destroy(self) -> None:
        self._owner.calls.append("destroy")
        self.is_active = False

    def undefine(self) -> None:
        self._owner.calls.append("undefine")
        del self._owner.networks[self._name]
