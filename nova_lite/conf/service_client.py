"""Options of a section for another OpenStack service, from keystoneauth, and the client that they configure."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from keystoneauth1 import _fair_semaphore, adapter, loading
from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1.plugin import BaseAuthPlugin
from oslo_config import cfg
from oslo_utils.uuidutils import is_uuid_like

from nova_lite.base import exceptions, faults, key_files


class _Monotonic:
    """Replacement of the module `time` in keystoneauth's request spacing."""

    @staticmethod
    def time() -> float:
        return time.monotonic()

    @staticmethod
    def sleep(seconds: float) -> None:
        time.sleep(seconds)


def space_by_monotonic_clock() -> None:
    """Make keystoneauth space requests by the monotonic clock. Every user of its adapters calls this first.

    keystoneauth 5.18 uses the wall clock: when it is set back, each request waits for that long.
    """
    _fair_semaphore.time = _Monotonic  # type: ignore[attr-defined, assignment]


def client_opts() -> list[cfg.Opt]:
    return [
        *loading.get_auth_common_conf_options(),
        *loading.get_session_conf_options(),
        *loading.get_adapter_conf_options(include_deprecated=False),
    ]


def plugin_opts() -> list[cfg.Opt]:
    """Return the options of ``auth_type = password`` for the sample. keystoneauth registers those of the plugin in
    use.
    """
    options: list[cfg.Opt] = loading.get_auth_plugin_conf_options("password")
    return options


def load_adapter(
    conf: cfg.ConfigOpts, group: str, backend: str, wrap: Callable[[BaseAuthPlugin], BaseAuthPlugin] | None = None
) -> adapter.Adapter:
    """Return the client of a section's service.

    ``backend``: the setting that needs it. ``wrap``: replaces the authentication plugin of the section's user.
    Raises `ConfigurationError`.
    """
    space_by_monotonic_clock()
    try:
        auth = loading.load_auth_from_conf_options(conf, group)
        if auth is None:
            raise exceptions.ConfigurationError(
                reason=f"{backend}: [{group}] auth_type and its options have to say as whom it is asked."
            )
        if wrap is not None:
            auth = wrap(auth)
        key_files.check_tls_client(conf[group], group)
        session = loading.load_session_from_conf_options(conf, group, auth=auth)
        loaded = loading.load_adapter_from_conf_options(conf, group, session=session, auth=auth)
    except (keystone_errors.ClientException, cfg.Error, ValueError, TypeError) as error:
        raise exceptions.ConfigurationError(reason=f"[{group}]: {error}") from error
    return faults.methods(loaded, {"request": functools.partial(_point, group)}, _refused)


def _point(group: str, url: str, method: str, **options: Any) -> str:
    """Return ``<group>/<method>/<what>``: the last word of the URL's path that is not an id."""
    words = urlsplit(url).path.split("/")
    return f"{group}/{method.lower()}/{next(word for word in reversed(words) if word and not is_uuid_like(word))}"


def _refused() -> keystone_errors.ConnectFailure:
    return keystone_errors.ConnectFailure("a test refuses it")
