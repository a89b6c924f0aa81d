"""Filter by properties of images."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from nova_lite.objects import HostState, Image, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter

#: Names of properties, the current one first.
ARCHITECTURE = ("hw_architecture", "architecture")
HYPERVISOR_TYPE = ("img_hv_type", "hypervisor_type")
HYPERVISOR_VERSION = ("img_hv_requested_version", "hypervisor_version_requires")
VM_MODE = ("hw_vm_mode", "vm_mode")

_ARCHITECTURES = {
    "amd64": "x86_64",
    "x86-64": "x86_64",
    "i386": "i686",
    "i486": "i686",
    "i586": "i686",
    "x86": "i686",
    "arm64": "aarch64",
}
#: Further architectures of guests that a host can run.
_ALSO_RUNS = {"x86_64": ("i686",), "aarch64": ("armv7l",)}
_VM_MODES = {"hv": "hvm", "pv": "xen"}
_COMPARISONS: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
_PREDICATE = re.compile(r"^\s*(<=|>=|==|!=|<|>)\s*([0-9]+(?:\.[0-9]+){0,2})\s*$")


class ImagePropertiesFilter(HostFilter):
    """Requires the image's architecture, hypervisor type, hypervisor version and vm mode."""

    run_once_per_request = True
    judges_images = True

    def applies(self, spec: RequestSpec) -> bool:
        names = (*ARCHITECTURE, *HYPERVISOR_TYPE, *HYPERVISOR_VERSION, *VM_MODE)
        return spec.image is not None and any(name in spec.image.properties for name in names)

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return self._unmet(host, spec) is None

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"image needs {self._unmet(host, spec)}"

    def _unmet(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return the first demand of the image that the host does not meet, in words."""
        if spec.image is None:
            return None
        architecture = _property(spec.image, ARCHITECTURE)
        if architecture and _architecture(architecture) not in _guest_architectures(host):
            return f"architecture {architecture}"
        hypervisor = _property(spec.image, HYPERVISOR_TYPE)
        if hypervisor and hypervisor not in _hypervisor_types(host):
            return f"hypervisor type {hypervisor}"
        version = _property(spec.image, HYPERVISOR_VERSION)
        if version and not _version_matches(host.hypervisor_version, version):
            return f"hypervisor version {version}"
        mode = _property(spec.image, VM_MODE)
        if mode and _vm_mode(mode) not in map(_vm_mode, host.supported_vm_modes):
            return f"vm mode {mode}"
        return None


def _property(image: Image, names: tuple[str, ...]) -> str | None:
    """Return the value of the first of these properties that the image has, in lower case."""
    return next((image.properties[name].strip().lower() for name in names if image.properties.get(name)), None)


def _architecture(name: str) -> str:
    return _ARCHITECTURES.get(name.lower(), name.lower())


def _guest_architectures(host: HostState) -> tuple[str, ...]:
    own = _architecture(host.cpu_arch)
    return (own, *_ALSO_RUNS.get(own, ()))


def _hypervisor_types(host: HostState) -> list[str]:
    return [name.lower() for name in host.supported_hv_types or [host.hypervisor_type]]


def _vm_mode(name: str) -> str:
    return _VM_MODES.get(name.lower(), name.lower())


def _version_matches(version: int, predicates: str) -> bool:
    """Return whether ``version`` (major * 1,000,000 + minor * 1,000 + micro) meets all predicates.

    They are like ``>=1.0,<2.4.1``. A predicate that cannot be parsed is not met.
    """
    ours = (version // 1_000_000, version // 1_000 % 1_000, version % 1_000)
    for predicate in predicates.split(","):
        parsed = _PREDICATE.match(predicate)
        if parsed is None:
            return False
        parts = [int(part) for part in parsed[2].split(".")]
        if not _COMPARISONS[parsed[1]](ours, tuple(parts + [0] * (3 - len(parts)))):
            return False
    return True
