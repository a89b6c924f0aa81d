"""Filter by required and forbidden traits."""

from __future__ import annotations

from collections.abc import Sequence

from nova_lite import hardware
from nova_lite.hardware import traits
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


class TraitsFilter(HostFilter):
    """Requires or forbids traits of the host.

    Flavor and image name traits (``trait:X=required``, ``forbidden``), and imply some by the guest's hardware:
    firmware, secure boot, graphics card. A volume that several servers may have needs one, too. A host that reports no
    traits has none.
    """

    run_once_per_request = True
    judges_images = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(_required(spec))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return not self._missing(host, spec)

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        required = _required(spec)
        return [host for host in hosts if not traits.missing(required, host.capabilities.get(traits.CAPABILITY, ()))]

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"traits {', '.join(self._missing(host, spec))}"

    def _missing(self, host: HostState, spec: RequestSpec) -> list[str]:
        return traits.missing(_required(spec), host.capabilities.get(traits.CAPABILITY, ()))


def _required(spec: RequestSpec) -> dict[str, str]:
    """Return the required and forbidden traits.

    Hardware that is not valid any more is ignored, so that older servers can still move.
    """
    of_volumes = dict.fromkeys(spec.traits, traits.REQUIRED)
    if not spec.flavor.extra_specs and (spec.image is None or not spec.image.properties):
        return of_volumes
    return {**hardware.resolve(spec.flavor, spec.image, strict=False).traits, **of_volumes}
