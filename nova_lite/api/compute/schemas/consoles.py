"""Bodies that ask for consoles."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.http.microversions import Change, Versioned


def _action(name: str, *console_types: str) -> t.Schema:
    return t.wrapped(name, t.strict({"type": t.one_of(*console_types)}, ("type",)))


GET_VNC = _action("os-getVNCConsole", "novnc", "xvpvnc")
GET_SPICE = _action("os-getSPICEConsole", "spice-html5")
GET_SERIAL = _action("os-getSerialConsole", "serial")

_PROTOCOLS = ("vnc", "spice", "rdp", "serial")
_TYPES = ("novnc", "xvpvnc", "spice-html5", "rdp-html5", "serial")


def _create(protocols: tuple[str, ...], console_types: tuple[str, ...]) -> t.Schema:
    asked = {"protocol": t.one_of(*protocols), "type": t.one_of(*console_types)}
    return t.wrapped("remote_console", t.strict(asked, ("protocol", "type")))


CREATE = Versioned(
    {
        Change.NO_CONSOLE_ACTIONS: _create(_PROTOCOLS, _TYPES),
        Change.MKS_CONSOLE: _create((*_PROTOCOLS, "mks"), (*_TYPES, "webmks")),
        Change.SPICE_DIRECT: _create((*_PROTOCOLS, "mks"), (*_TYPES, "webmks", "spice-direct")),
    }
)
