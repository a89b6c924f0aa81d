"""Filters by the metadata of host aggregates.

A key may have several values: in several aggregates, and separated by commas within one.
"""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters import extra_spec_ops
from nova_lite.scheduler.filters.base import HostFilter

SCOPE = "aggregate_instance_extra_specs"
TENANTS = "filter_tenant_id"


def values(host: HostState, key: str) -> set[str]:
    """Return all values of ``key`` in the host's aggregates."""
    present: set[str] = set()
    for aggregate in host.aggregates:
        if key in aggregate.metadata:
            present.update(part.strip() for part in aggregate.metadata[key].split(","))
    return present


def least_number(host: HostState, key: str, default: int) -> int:
    """Return the smallest whole number that the aggregates set for ``key``, or ``default``."""
    numbers = [int(value) for value in values(host, key) if value.isascii() and value.isdigit()]
    return min(numbers, default=default)


class AggregateInstanceExtraSpecsFilter(HostFilter):
    """Requires that an aggregate of the host meets each extra spec of the flavor.

    Extra specs ``aggregate_instance_extra_specs:KEY``, and those without a scope, are compared with the values of KEY.
    The operators are those of `extra_spec_ops`; ``!`` requires that no aggregate has the key.
    """

    run_once_per_request = True

    def applies(self, spec: RequestSpec) -> bool:
        return any(_key(name) is not None for name in spec.flavor.extra_specs)

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return self._unmet(host, spec) is None

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"no aggregate meets extra spec {self._unmet(host, spec)}"

    def _unmet(self, host: HostState, spec: RequestSpec) -> str | None:
        for name, requirement in spec.flavor.extra_specs.items():
            key = _key(name)
            if key is None:
                continue
            present = values(host, key)
            met = (
                not present
                if requirement == "!"
                else any(extra_spec_ops.match(value, requirement) for value in present)
            )
            if not met:
                return name
        return None


def _key(name: str) -> str | None:
    scope, separator, key = name.partition(":")
    if not separator:
        return name
    return key if scope == SCOPE else None


class AggregateImagePropertiesIsolation(HostFilter):
    """Reserves hosts for images with certain properties.

    If an aggregate of the host sets a property, images with other values are rejected. Images without the property
    pass. With a namespace, only keys that begin with it count.
    """

    run_once_per_request = True
    judges_images = True

    def __init__(self, namespace: str | None = None, separator: str = ".") -> None:
        self._prefix = f"{namespace}{separator}" if namespace else ""

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> HostFilter:
        options = conf.scheduler
        return cls(
            options.aggregate_image_properties_isolation_namespace,
            options.aggregate_image_properties_isolation_separator,
        )

    def applies(self, spec: RequestSpec) -> bool:
        return spec.image is not None and bool(spec.image.properties)

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        return self._unmet(host, spec) is None

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return f"kept for images with another {self._unmet(host, spec)}"

    def _unmet(self, host: HostState, spec: RequestSpec) -> str | None:
        properties = spec.image.properties if spec.image is not None else {}
        keys = {key for aggregate in host.aggregates for key in aggregate.metadata}
        for key in sorted(keys & properties.keys()):
            if key.startswith(self._prefix) and properties[key] not in values(host, key):
                return key
        return None


class AggregateMultiTenancyIsolation(HostFilter):
    """Reserves hosts for projects. The keys ``filter_tenant_id*`` of the aggregates name them."""

    run_once_per_request = True

    def judges_owner(self, hosts: Sequence[HostState]) -> bool:
        keys = (key for host in hosts for aggregate in host.aggregates for key in aggregate.metadata)
        return any(key.startswith(TENANTS) for key in keys)

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        if not host.aggregates:
            return True
        keys = {key for aggregate in host.aggregates for key in aggregate.metadata if key.startswith(TENANTS)}
        projects = {project for key in keys for project in values(host, key)}
        return not projects or spec.project_id in projects

    def passing(self, hosts: Sequence[HostState], spec: RequestSpec) -> list[HostState]:
        return [host for host in hosts if not host.aggregates or self.host_passes(host, spec)]

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return "kept for other projects"
