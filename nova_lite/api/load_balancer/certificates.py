"""Certificates of listeners, from secrets of the project.

A reference names a secret, which is a PKCS12 without a password, or a container of the type certificate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.key_manager import resource
from nova_lite.base import exceptions, sealing
from nova_lite.load_balancer import certificates
from nova_lite.load_balancer.certificates import Source
from nova_lite.load_balancer.objects import WING, Listener, Secret
from nova_lite.rpcapi.conductor import ConductorRPC


def sealed(conductor: ConductorRPC, req: ServiceRequest, listeners: Iterable[Listener]) -> dict[str, str]:
    """Return the certificates of each listener that names some, as JSON of PEM texts, sealed to the conductors.

    Raises a 400 for a reference to nothing, or to what is no certificate with its key.
    """

    def read(method: str, **arguments: Any) -> Any:
        return conductor.wing_read(req.context, WING, method, arguments)

    found: dict[str, str] = {}
    for listener in listeners:
        if listener.secret_refs:
            texts = [_pem(read, reference) for reference in listener.secret_refs]
            receiver = conductor.wing_change(req.context, WING, "secret_public_key", {})
            found[listener.id] = sealing.seal(receiver, msgspec.json.encode(texts))
    return found


def _pem(read: Callable[..., Any], reference: str) -> str:
    kind, id = resource.parsed(reference)
    try:
        parts = {"pkcs12": id}
        if kind == "container":
            parts = msgspec.convert(read("secret_get", kind=kind, id=id), Secret).parts or {}
        known = parts.keys() & set(Source.__struct_fields__)
        return certificates.read(Source(**{name: _payload(read, parts[name]) for name in known}))
    except (exceptions.NotFound, ValueError) as error:
        reason = error.message if isinstance(error, exceptions.NotFound) else str(error)
        raise exceptions.ValidationError(detail=f"Could not retrieve certificate: {reference}: {reason}") from error


def _payload(read: Callable[..., Any], id: str) -> bytes:
    private_key = sealing.new_private_key()
    return sealing.unseal(private_key, read("secret_payload", id=id, receiver=sealing.public_key(private_key)))
