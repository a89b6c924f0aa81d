"""Console proxies that the page reaches: the only other places that its content security policy names."""

from __future__ import annotations

import re
import urllib.parse

from oslo_config import cfg

from nova_lite.base import exceptions

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
_DEFAULT_PORTS = {"ws": 80, "wss": 443}
#: Content security policies have names and IPv4 addresses. They cannot have an IPv6 address.
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def origins(conf: cfg.ConfigOpts) -> list[str]:
    """Return the origins of the proxies' WebSockets, such as ``wss://cloud:6080``.

    They are those of ``[api] page_console_urls``; without it, those of the URLs in ``[vnc]`` and ``[serial_console]``.
    Raises `ConfigurationError` for a URL that no policy can have.
    """
    urls = conf.api.page_console_urls
    if urls is None:
        own = (conf.vnc.novncproxy_base_url, conf.serial_console.base_url)
        return sorted({origin for url in own if (origin := _origin(url)) is not None})
    found = {url: _origin(url) for url in urls}
    for url, origin in found.items():
        if origin is None:
            raise exceptions.ConfigurationError(
                reason=f"[api] page_console_urls: {url[:256]!r} is not a URL such as https://console.example.org:6080."
            )
    return sorted({origin for origin in found.values() if origin is not None})


def _origin(url: str) -> str | None:
    """Return the origin as browsers write it, or None."""
    try:
        parts = urllib.parse.urlsplit(url)
        scheme, host, port = _SCHEMES.get(parts.scheme), parts.hostname or "", parts.port
    except ValueError:
        return None
    if scheme is None or not _NAME.fullmatch(host) or port == 0:
        return None
    return f"{scheme}://{host}" + ("" if port in (None, _DEFAULT_PORTS[scheme]) else f":{port}")
