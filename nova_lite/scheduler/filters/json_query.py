"""Filter by a query that the user writes.

The hint ``query`` is JSON: ``["and", [">=", "$free_ram_mb", 1024], ["=", "$cpu_arch", "x86_64"]]``. Operators: ``= < >
<= >= in not or and``. ``$name`` is a field of the host, and ``$a.b`` an entry of a mapping.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters import hints
from nova_lite.scheduler.filters.base import HostFilter

#: Deepest nesting that a query may have. Users write queries, so it is limited.
MAX_DEPTH = 20

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
#: Nova's names for derived values.
_FREE: dict[str, Callable[[HostState], Any]] = {
    "free_ram_mb": lambda host: host.memory_mb - host.memory_mb_used,
    "free_disk_mb": lambda host: (host.disk_gb - host.disk_gb_used) * 1024,
    "vcpus_free": lambda host: host.vcpus - host.vcpus_used,
    "hypervisor_hostname": lambda host: host.node,
    "num_instances": lambda host: len(host.instances),
    "num_io_ops": lambda host: host.io_ops,
}
#: Fields that queries may use. Others would show data of other projects.
_VISIBLE = (
    "host", "node", "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "disk_gb", "disk_gb_used", "cpu_arch",
    "availability_zone", "hypervisor_type", "hypervisor_version", "capabilities", "host_ip",
)  # fmt: skip


class JsonFilter(HostFilter):
    """Requires that the host satisfies the hint ``query``. No host satisfies a query that cannot be parsed."""

    def applies(self, spec: RequestSpec) -> bool:
        return bool(spec.scheduler_hints.get("query"))

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        try:
            return bool(_evaluate(json.loads(hints.one(spec, "query", "")), host))
        except (ValueError, TypeError, RecursionError):
            return False

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return "does not satisfy the query"


def _evaluate(query: Any, host: HostState, depth: int = 0) -> Any:
    if isinstance(query, str) and query.startswith("$"):
        return _field(host, query[1:])
    if not isinstance(query, list):
        return query
    if depth > MAX_DEPTH or not query:
        raise ValueError("too deep, or empty")
    name, *rest = query
    arguments = [_evaluate(argument, host, depth + 1) for argument in rest]
    if name == "and":
        return all(arguments)
    if name == "or":
        return any(arguments)
    if name == "not":
        return not any(arguments)
    if name == "in" and arguments:
        return arguments[0] in arguments[1:]
    if name in _COMPARISONS and len(arguments) > 1 and None not in arguments:
        return all(_COMPARISONS[name](arguments[0], other) for other in arguments[1:])
    return False


def _field(host: HostState, path: str) -> Any:
    first, *names = path.split(".")
    if first in _FREE:
        return _FREE[first](host)
    value: Any = getattr(host, first) if first in _VISIBLE else None
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
