"""Traits that a host has to have, or must not have."""

from __future__ import annotations

from collections.abc import Sequence

from nova_lite import hardware
from nova_lite.hardware import traits
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


class TraitsFilter(HostFilter):
    """What flavor and image ask for by name (``trait:X=required``, ``forbidden``), and what their guest's hardware
    needs of a host: firmware, secure boot, graphics card. A host that tells of no traits has none."""

    run_once_per_request = True
    judges_images = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(_wanted(spec))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return not self._missing(host, spec)

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        wanted = _wanted(spec)
        return [host for host in hosts if not traits.missing(wanted, host.capabilities.get(traits.CAPABILITY, ()))]

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"traits {', '.join(self._missing(host, spec))}"

    def _missing(self, host: HostState, spec: RequestSpec) -> list[str]:
        return traits.missing(_wanted(spec), host.capabilities.get(traits.CAPABILITY, ()))


def _wanted(spec: RequestSpec) -> dict[str, str]:
    """Servers that were made when their hardware was not looked at still move on, with what they can have."""
    if not spec.flavor.extra_specs and (spec.image is None or not spec.image.properties):
        return {}
    return hardware.resolve(spec.flavor, spec.image, strict=False).traits
