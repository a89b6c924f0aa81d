"""Filter by capabilities that flavors demand in their extra specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters import extra_spec_ops
from nova_lite.scheduler.filters.base import HostFilter

SCOPE = "capabilities"
#: Fields of a host that extra specs may name, besides its capabilities.
_FIELDS = ("hypervisor_type", "hypervisor_version", "cpu_arch", "vcpus", "memory_mb", "disk_gb", "host", "node")
_MISSING = object()


class ComputeCapabilitiesFilter(HostFilter):
    """Compares extra specs ``capabilities:a:b`` with the host's ``capabilities["a"]["b"]``.

    A key without a scope counts only if the host has such a capability. Keys of other scopes (``hw:...``) are ignored.
    The operators are those of `extra_spec_ops`.
    """

    run_once_per_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return any(_path(key) is not None for key in spec.flavor.extra_specs)

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return self._unmet(host, spec) is None

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"extra spec {self._unmet(host, spec)} not met"

    def _unmet(self, host: HostState, spec: RequestSpec) -> str | None:
        """Return the first extra spec that the host does not meet."""
        for key, requirement in spec.flavor.extra_specs.items():
            path = _path(key)
            if path is None:
                continue
            value = _capability(host, path)
            if value is _MISSING and ":" not in key:
                continue
            if value is _MISSING or not extra_spec_ops.match(value, requirement):
                return key
        return None


def _path(key: str) -> list[str] | None:
    """Return the path into the capabilities, or None for a key of another scope."""
    scope, *names = key.split(":")
    if not names:
        return [scope]
    return names if scope == SCOPE else None


def _capability(host: HostState, path: list[str]) -> Any:
    value: Any = host.capabilities
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return getattr(host, path[0]) if len(path) == 1 and path[0] in _FIELDS else _MISSING
        value = value[name]
    return value
