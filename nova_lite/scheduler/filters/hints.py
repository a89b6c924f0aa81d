"""Filters by scheduler hints of users: near to, or away from, other servers."""

from __future__ import annotations

from nova_lite.base import ip
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


def uuids(spec: RequestSpec, hint: str) -> list[str]:
    """Return the uuids of a hint, which has one or several."""
    value = spec.scheduler_hints.get(hint) or []
    return [value] if isinstance(value, str) else list(value)


class DifferentHostFilter(HostFilter):
    """Rejects the hosts of the servers in the hint ``different_host``."""

    run_once_per_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(uuids(spec, "different_host"))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return not set(uuids(spec, "different_host")).intersection(host.instances)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return "holds a server that different_host names"


class SameHostFilter(HostFilter):
    """Requires a host of one of the servers in the hint ``same_host``."""

    run_once_per_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(uuids(spec, "same_host"))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return bool(set(uuids(spec, "same_host")).intersection(host.instances))

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return "holds none of the servers that same_host names"


class SimpleCIDRAffinityFilter(HostFilter):
    """Requires a host in the network of the address in the hint ``build_near_host_ip``. The hint ``cidr`` is its size,
    ``/24`` by default."""

    run_once_per_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.scheduler_hints.get("build_near_host_ip"))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        try:
            network = ip.parse_network(_requested_network(spec), strict=False)
            return ip.parse(host.host_ip or "") in network
        except ValueError:
            return False

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"not in {_requested_network(spec)}"


def _requested_network(spec: RequestSpec) -> str:
    return f"{one(spec, 'build_near_host_ip', '')}/{one(spec, 'cidr', '/24').lstrip('/')}"


def one(spec: RequestSpec, hint: str, default: str) -> str:
    """Return the value of a hint, or the first of several."""
    value = spec.scheduler_hints.get(hint) or default
    return value if isinstance(value, str) else value[0]
