"""A libvirt that describes and compares processors as a test says."""

from __future__ import annotations

import re
from typing import Any

import libvirt

from nova_lite.virt.libvirt.connection import LibvirtFailure
from tests.unit.virt.libvirt.scripted import failure

DOMAIN_CAPABILITIES = """
<domainCapabilities><cpu><mode name='host-model' supported='yes'>
  <model fallback='forbid'>Skylake-Server</model><vendor>Intel</vendor>
  <feature policy='require' name='hypervisor'/><feature policy='disable' name='hle'/>
</mode></cpu></domainCapabilities>
"""
CAPABILITIES = "<capabilities><guest><arch name='x86_64'><machine>pc-q35-7.2</machine></arch></guest></capabilities>"
INCOMPATIBLE = failure(
    libvirt.VIR_ERR_CPU_INCOMPATIBLE,
    message="the CPU is incompatible with host CPU: Host CPU does not provide required features: avx512f, sse4.1",
)


class Libvirt:
    """A libvirt that expands a processor to the names in its description. ``failures``: by method."""

    def __init__(self) -> None:
        self.failures: dict[str, libvirt.libvirtError] = {}
        self.calls: list[tuple[str, Any]] = []

    def connect_call(self, name: str, *arguments: Any) -> Any:
        self.calls.append((name, arguments))
        if name in self.failures:
            raise LibvirtFailure(self.failures[name])
        if name in ("getVersion", "getLibVersion"):
            return {"getVersion": 7_002_000, "getLibVersion": 9_000_000}[name]
        if name == "baselineHypervisorCPU":
            required = re.findall(r'policy="require" name="([^"]+)"', arguments[4][0])
            return "<cpu>" + "".join(f"<feature name='{item}'/>" for item in ("sse", *required)) + "</cpu>"
        return 1

    def named(self, name: str) -> list[Any]:
        return [arguments for called, arguments in self.calls if called == name]
