"""Reasons why no host was found: a sentence for the server's owner, and lines with host names for admins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova_lite.base.exceptions import NoValidHost
from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter

#: Number of hosts that the details name for each filter: the closest misses.
CLOSEST = 5


def no_valid_host(
    rejected: Mapping[HostFilter, Sequence[HostState]], spec: RequestSpec, total: int, placed: int
) -> NoValidHost:
    """Return the error for a request of which only ``placed`` instances fit on ``total`` hosts.

    Its ``reason`` names no host. Its ``details`` have a line per filter that rejected hosts, with the closest misses.
    """
    if not total:
        return NoValidHost(reason="There are no compute hosts.", details="No compute host is known.")
    failed = {item: hosts for item, hosts in rejected.items() if hosts}
    counts = ", ".join(_count(item, hosts, spec) for item, hosts in failed.items())
    sentence = f"Of {_candidates(total, spec)}, {counts}."
    if placed:
        sentence = f"There is room for {placed} of the {len(spec.instance_uuids)} servers requested. {sentence}"
    lines = [_misses(item, hosts, spec, total) for item, hosts in failed.items()]
    return NoValidHost(reason=sentence, details="\n".join(lines))


def _count(host_filter: HostFilter, hosts: Sequence[HostState], spec: RequestSpec) -> str:
    closest = min(hosts, key=lambda host: host_filter.shortfall(host, spec))
    summary = host_filter.summary(closest, spec)
    return f"{len(hosts)} failed {type(host_filter).__name__}" + (f" ({summary})" if summary else "")


def _misses(host_filter: HostFilter, hosts: Sequence[HostState], spec: RequestSpec, total: int) -> str:
    nearest = sorted(hosts, key=lambda host: host_filter.shortfall(host, spec))[:CLOSEST]
    named = ", ".join(_miss(host_filter, host, spec) for host in nearest)
    more = f" and {len(hosts) - len(nearest)} more" if len(hosts) > len(nearest) else ""
    return f"{type(host_filter).__name__} took out {len(hosts)} of {_candidates(total, spec)}: {named}{more}."


def _miss(host_filter: HostFilter, host: HostState, spec: RequestSpec) -> str:
    name = host.host if host.node == host.host else f"{host.host}/{host.node}"
    reason = host_filter.reason(host, spec)
    return f"{name} ({reason})" if reason else name


def _candidates(number: int, spec: RequestSpec) -> str:
    kind = "host" if spec.requested_destination is None else "requested host"
    return f"1 {kind}" if number == 1 else f"{number} {kind}s"
