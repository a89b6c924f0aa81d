"""Hosts of ten processor generations, each a real libvirt that takes this machine for one of them.

libvirt asks qemu once for the features that guests can have, and keeps the reply in a file. A worker process changes
that file, and opens libvirt's own driver with it (``qemu:///embed``). So libvirt compares as on such a host, and no KVM
is needed. The features of each generation are those of libvirt's maps.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import libvirt
import msgspec

from nova_lite.objects import HostCpu, LiveSource
from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.host.cpu_model import of_baseline
from nova_lite.virt.libvirt.host.guest_cpus import ARCHITECTURE, GuestCpus, of_definition
from nova_lite.virt.libvirt.host.kvm import QEMU

MAPS = Path("/usr/share/libvirt/cpu_map")

#: libvirt's models, with their vendors.
GENERATIONS = {
    "Nehalem": "Intel",
    "SandyBridge": "Intel",
    "IvyBridge": "Intel",
    "Haswell-noTSX": "Intel",
    "Skylake-Server-noTSX-IBRS": "Intel",
    "Cascadelake-Server-noTSX": "Intel",
    "Icelake-Server-noTSX": "Intel",
    "EPYC": "AMD",
    "EPYC-Rome": "AMD",
    "EPYC-Milan": "AMD",
}
_CPUID_VENDORS = {"Intel": "GenuineIntel", "AMD": "AuthenticAMD"}
#: qemu's names of features that libvirt names otherwise.
_NAMES_OF_QEMU = {
    "pclmulqdq": "pclmuldq",
    "lahf-lm": "lahf_lm",
    "fxsr-opt": "fxsr_opt",
    "perfctr-core": "perfctr_core",
    "vmx-invept-single-context-noglobals": "vmx-invvpid-single-context-noglobals",
}

_DOMAIN = "<domain type='qemu'><os><type machine='{machine}'>hvm</type></os></domain>"


def features_of(model: str, kinds: Collection[str | None] = (None, "yes")) -> tuple[set[str], ET.Element | None]:
    """Return the features of a model by libvirt's maps, and its signature. ``kinds``: values of ``added``; None are its
    first features, and "yes" later ones.
    """
    element = ET.parse(MAPS / f"x86_{model}.xml").find("model")
    assert element is not None
    base, signature = element.find("model"), element.find("signature")
    found, inherited = (set(), None) if base is None else features_of(base.get("name", ""), kinds)
    present = [item for item in element.iterfind("feature") if item.get("removed") != "yes"]
    found |= {item.get("name", "") for item in present if item.get("added") in kinds}
    return found, inherited if signature is None else signature


def make_template(root: Path) -> Path:
    """Return the directory in which libvirt keeps what qemu replies on this machine, a file for each architecture."""
    subprocess.run([sys.executable, "-m", __name__, str(root), "template"], check=True, timeout=120, text=True)
    return root / "cache/qemu/capabilities"


class Host:
    """A host of a generation. ``features``: of its processor. ``cpu``, ``guest``: as our code describes the processor,
    and that of a guest with its own model.
    """

    def __init__(self, template: Path, root: Path, generation: str) -> None:
        target = root / "cache/qemu/capabilities"
        shutil.copytree(template, target)
        (own,) = (path for path in target.iterdir() if f"<arch>{ARCHITECTURE}</arch>" in path.read_text())
        changed, self.features = _changed(own.read_text(), generation)
        own.write_text(changed)
        command = [sys.executable, "-m", __name__, str(root), "serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        described = self._read()
        self.cpu = msgspec.convert(described["host"], HostCpu)
        self.guest = msgspec.convert(described["guest"], LiveSource)

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, method: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([method, *map(msgspec.to_builtins, arguments)]) + "\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def _changed(template: str, generation: str) -> tuple[str, set[str]]:
    """Return the answers of a qemu on a processor of the generation, and the processor's features. It lacks features
    that libvirt has added to the model later, and that this qemu does not know.
    """
    features, signature = features_of(generation)
    features.add("hypervisor")
    assert signature is not None
    numbers = {"family": signature.get("family"), "model": signature.get("model"), "stepping": "1"}
    texts = {"vendor": _CPUID_VENDORS[GENERATIONS[generation]]}
    root = ET.fromstring(template)
    known = set()
    for item in root.iterfind("hostCPU[@type='tcg']/property"):
        name = item.get("name", "")
        if item.get("type") == "boolean":
            name = _NAMES_OF_QEMU.get(name, name)
            known.add(name)
            item.set("value", "true" if name in features else "false")
            item.attrib.pop("migratable", None)
            if name in features:
                item.set("migratable", "yes")
        elif value := {**numbers, **texts}.get(name):
            item.set("value", value)
    assert features_of(generation, [None])[0] <= known, features - known
    features &= known
    for model in root.iterfind("cpu[@type='tcg']"):
        for blocker in model.findall("blocker"):
            if _NAMES_OF_QEMU.get(blocker.get("name", ""), blocker.get("name")) in features:
                model.remove(blocker)
        model.set("usable", "yes" if model.find("blocker") is None else "no")
    return ET.tostring(root, encoding="unicode"), features


# --- the worker


class _Connection:
    def __init__(self, root: str) -> None:
        libvirt.registerErrorHandler(lambda *error: None, None)
        libvirt.virEventRegisterDefaultImpl()
        threading.Thread(target=_run_events, daemon=True).start()
        self._libvirt = libvirt.open(f"qemu:///embed?root={root}")

    def connect_call(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self._libvirt, name)(*arguments)
        except libvirt.libvirtError as error:
            raise LibvirtFailure(error) from error


def _run_events() -> None:
    while True:
        libvirt.virEventRunDefaultImpl()


def _serve(root: str, requests: Iterable[str]) -> None:
    """Describe the host, and then answer requests: comparisons with guests, and baselines of hosts."""
    connection = _Connection(root)
    domain_capabilities = connection.connect_call("getDomainCapabilities", None, ARCHITECTURE, "pc", QEMU, 0)
    cpus = GuestCpus(connection, QEMU, domain_capabilities, connection.connect_call("getCapabilities"))  # type: ignore[arg-type]
    domain = ET.fromstring(_DOMAIN.format(machine="pc-i440fx-6.2"))
    model = ET.fromstring(domain_capabilities).find("cpu/mode[@name='host-model']")
    assert model is not None
    running = ET.SubElement(domain, "cpu", mode="custom", match="exact", check="full")
    running.extend(list(model))
    guest, cpu_xml = cpus.guest(ET.tostring(domain, encoding="unicode"))
    source = LiveSource(driver="libvirt", disks={}, guest_cpu=guest, cpu_xml=cpu_xml)
    _reply({"host": msgspec.to_builtins(cpus.host), "guest": msgspec.to_builtins(source)})
    for line in requests:
        method, argument = json.loads(line)
        if method == "lacking":
            cpu = of_baseline(argument).whole()
            _reply({"lacking": cpus.lacking(_text(cpu)), "features": sorted(cpus.features(_text(cpu)))})
        elif method == "baseline":
            _reply(sorted(_baseline(connection, cpus, msgspec.convert(argument, list[HostCpu]))))
        else:
            _reply(_verdict(cpus, msgspec.convert(argument, LiveSource)))


def _baseline(connection: _Connection, cpus: GuestCpus, hosts: list[HostCpu]) -> frozenset[str]:
    """Return the features of libvirt's own baseline."""
    known = [_text(of_definition(host.definition, host.vendor)) for host in hosts]
    found = connection.connect_call("baselineHypervisorCPU", None, ARCHITECTURE, None, QEMU, known, 0)
    return cpus.features(found)


def _verdict(cpus: GuestCpus, source: LiveSource) -> str:
    try:
        cpus.check(source)
    except Exception as error:
        return str(error)
    return ""


def _text(cpu: ET.Element) -> str:
    return ET.tostring(cpu, encoding="unicode")


def _reply(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def available() -> bool:
    return shutil.which("qemu-system-x86_64") is not None and MAPS.is_dir()


if __name__ == "__main__":
    if sys.argv[2] == "template":
        _Connection(sys.argv[1]).connect_call("getCapabilities")  # asks the qemu of each architecture
    else:
        _serve(sys.argv[1], sys.stdin)
