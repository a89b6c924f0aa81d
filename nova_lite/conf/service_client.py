"""A section that says where another service is, and as whom it is asked: keystoneauth's own options, and what they
make."""

from __future__ import annotations

import time
from collections.abc import Callable

from keystoneauth1 import _fair_semaphore, adapter, loading
from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1.plugin import BaseAuthPlugin
from oslo_config import cfg

from nova_lite.base import exceptions


class _Monotonic:
    """What keystoneauth is to take for the module `time` where it spaces requests."""

    @staticmethod
    def time() -> float:
        return time.monotonic()

    @staticmethod
    def sleep(seconds: float) -> None:
        time.sleep(seconds)


def space_by_monotonic_clock() -> None:
    """Whoever makes adapters of keystoneauth's, or has them made, calls this first: they space requests by the wall
    clock, and when that is set back, each request waits for as long as that was (keystoneauth 5.18)."""
    _fair_semaphore.time = _Monotonic  # type: ignore[attr-defined, assignment]


def client_opts() -> list[cfg.Opt]:
    return [
        *loading.get_auth_common_conf_options(),
        *loading.get_session_conf_options(),
        *loading.get_adapter_conf_options(include_deprecated=False),
    ]


def plugin_opts() -> list[cfg.Opt]:
    """For the sample: what ``auth_type = password`` takes. keystoneauth registers the options of the plugin in use."""
    options: list[cfg.Opt] = loading.get_auth_plugin_conf_options("password")
    return options


def load_adapter(
    conf: cfg.ConfigOpts, group: str, backend: str, wrap: Callable[[BaseAuthPlugin], BaseAuthPlugin] | None = None
) -> adapter.Adapter:
    """Requests to the service of a section. ``backend``: the setting that needs it; ``wrap``: makes what authenticates
    of the section's user. Raises `ConfigurationError`."""
    space_by_monotonic_clock()
    try:
        auth = loading.load_auth_from_conf_options(conf, group)
        if auth is None:
            raise exceptions.ConfigurationError(
                reason=f"{backend}: [{group}] auth_type and its options have to say as whom it is asked."
            )
        if wrap is not None:
            auth = wrap(auth)
        session = loading.load_session_from_conf_options(conf, group, auth=auth)
        return loading.load_adapter_from_conf_options(conf, group, session=session, auth=auth)
    except (keystone_errors.ClientException, cfg.Error, ValueError, TypeError) as error:
        raise exceptions.ConfigurationError(reason=f"[{group}]: {error}") from error
