"""Fence agents: Redfish, IPMI, libvirt, and a program of the operator."""

from __future__ import annotations

import os
from typing import Any

import requests

from nova_lite.base import exceptions
from nova_lite.fence.agent import WORD, FenceAgent, Power, run, secret

_PATH = r"/[A-Za-z0-9_./@:-]{1,250}"
_FLAG = "[Tt]rue|[Ff]alse"


class Redfish(FenceAgent):
    """A management card that speaks Redfish. ``system``: the path of its computer system."""

    OPTIONS = {
        "url": r"https?://[A-Za-z0-9_.:\[\]-]{1,250}/?",
        "system": _PATH,
        "username": r"[^\x00-\x1f]{1,255}",
        "password_file": _PATH,
        "ca_file": _PATH,
        "verify": _FLAG,
    }
    REQUIRED = ("url", "system", "username", "password_file")

    def _call(self, method: str, path: str, seconds: float, body: dict[str, Any] | None = None) -> Any:
        settings = self.settings
        verify: bool | str = settings.get("verify", "true").lower() == "true"
        if verify and "ca_file" in settings:
            verify = settings["ca_file"]
        session = requests.Session()
        session.trust_env = False  # No proxy, and no password of another file.
        try:
            with session:
                reply = session.request(
                    method,
                    settings["url"].rstrip("/") + path,
                    json=body,
                    auth=(settings["username"], secret(settings["password_file"])),
                    timeout=seconds,
                    verify=verify,
                    allow_redirects=False,
                )
                if not 200 <= reply.status_code < 300:
                    raise exceptions.FenceFailed(reason=f"Redfish replies {reply.status_code} to {method} {path}")
                return reply.json() if reply.content else {}
        except (requests.RequestException, ValueError) as error:
            raise exceptions.FenceFailed(reason=f"Redfish at {settings['url']}: {type(error).__name__}") from error

    def off(self, seconds: float) -> None:
        path = self.settings["system"].rstrip("/") + "/Actions/ComputerSystem.Reset"
        self._call("POST", path, seconds, {"ResetType": "ForceOff"})

    def power(self, seconds: float) -> Power:
        found = self._call("GET", self.settings["system"], seconds)
        state = found.get("PowerState") if isinstance(found, dict) else None
        # PoweringOff and Paused are not off.
        if state not in ("On", "Off", "PoweringOn", "PoweringOff", "Paused"):
            raise exceptions.FenceFailed(reason=f"Redfish at {self.settings['url']} names no power state")
        return Power.OFF if state == "Off" else Power.ON


class Ipmi(FenceAgent):
    """A management card that speaks IPMI 2.0, by ``ipmitool``. It reads the password from the file itself."""

    OPTIONS = {
        "address": WORD,
        "port": "[0-9]{1,5}",
        "username": WORD,
        "password_file": _PATH,
        "interface": "lanplus|lan",
        "level": "CALLBACK|USER|OPERATOR|ADMINISTRATOR",
        "cipher": "[0-9]{1,2}",
    }
    REQUIRED = ("address", "username", "password_file")

    def command(self, *words: str) -> list[str]:
        settings = self.settings
        options = ["-I", settings.get("interface", "lanplus"), "-H", settings["address"]]
        options += ["-p", settings.get("port", "623"), "-U", settings["username"]]
        options += ["-L", settings.get("level", "OPERATOR"), "-f", settings["password_file"]]
        options += ["-C", settings["cipher"]] if "cipher" in settings else []
        return ["ipmitool", *options, "chassis", "power", *words]

    def _run(self, word: str, seconds: float) -> str:
        secret(self.settings["password_file"])  # Refuse a file that others may read.
        return run(self.command(word), seconds)

    def off(self, seconds: float) -> None:
        self._run("off", seconds)

    def power(self, seconds: float) -> Power:
        words = self._run("status", seconds).strip().lower()
        if words not in ("chassis power is on", "chassis power is off"):
            raise exceptions.FenceFailed(reason="ipmitool names no power state")
        return Power(words.rpartition(" ")[2])


class Libvirt(FenceAgent):
    """A host that is a virtual machine: the power of its domain, by ``virsh``."""

    OPTIONS = {"uri": r"(qemu|test|xen)(\+(ssh|tls|unix))?://[A-Za-z0-9_.:@/\[\]?=&-]{0,250}", "domain": WORD}
    REQUIRED = ("uri", "domain")

    #: States of virsh in which no CPU of the domain runs, and none starts without a new command.
    OFF = ("shut off", "crashed")

    def _run(self, verb: str, seconds: float) -> str:
        return run(["virsh", "-q", "-c", self.settings["uri"], verb, self.settings["domain"]], seconds, {"LC_ALL": "C"})

    def off(self, seconds: float) -> None:
        if self.power(seconds) is not Power.OFF:
            self._run("destroy", seconds)

    def power(self, seconds: float) -> Power:
        return Power.OFF if self._run("domstate", seconds).strip() in self.OFF else Power.ON


class Script(FenceAgent):
    """A program of the operator: ``PROGRAM off HOST`` and ``PROGRAM status HOST``, which prints ``on`` or ``off``."""

    OPTIONS = {"program": _PATH, "target": WORD}
    REQUIRED = ("program", "target")

    def _run(self, verb: str, seconds: float) -> str:
        path = self.settings["program"]
        if os.path.exists(path) and os.stat(path).st_mode & 0o022:
            raise exceptions.FenceFailed(reason=f"others than its owner may change {path}")
        return run([path, verb, self.settings["target"]], seconds)

    def off(self, seconds: float) -> None:
        self._run("off", seconds)

    def power(self, seconds: float) -> Power:
        word = self._run("status", seconds).strip()
        if word not in tuple(Power):
            raise exceptions.FenceFailed(reason=f"{self.settings['program']} status prints neither on nor off")
        return Power(word)
