"""Filter that reserves hosts for certain images."""

from __future__ import annotations

from collections.abc import Collection

from oslo_config import cfg

from nova_lite.objects import HostState, RequestSpec
from nova_lite.scheduler.filters.base import HostFilter


class IsolatedHostsFilter(HostFilter):
    """Keeps images of ``isolated_images`` on ``isolated_hosts``.

    Other images can use these hosts only without ``restrict_isolated_hosts_to_isolated_images``.
    """

    run_once_per_request = True
    judges_images = True

    def __init__(self, hosts: Collection[str] = (), images: Collection[str] = (), restrict: bool = True) -> None:
        self._hosts = frozenset(hosts)
        self._images = frozenset(images)
        self._restrict = restrict

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> HostFilter:
        options = conf.scheduler
        restrict = options.restrict_isolated_hosts_to_isolated_images
        return cls(options.isolated_hosts, options.isolated_images, restrict)

    def applies(self, spec: RequestSpec) -> bool:
        return bool(self._hosts or self._images)

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        isolated = host.host in self._hosts
        if self._isolated_image(spec):
            return isolated
        return not (isolated and self._restrict)

    def reason(self, host: HostState, spec: RequestSpec) -> str:
        return "not kept for this image" if self._isolated_image(spec) else "kept for other images"

    def _isolated_image(self, spec: RequestSpec) -> bool:
        return spec.image is not None and spec.image.id in self._images
