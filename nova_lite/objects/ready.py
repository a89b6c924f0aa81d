"""Making structs safe to decode from several threads."""

from __future__ import annotations

import msgspec


def prepare_decoders(*kinds: type[msgspec.Struct]) -> None:
    """Have msgspec work out now what it needs to decode into ``kinds``; called where they are defined, at import.

    It would do so at the first use, and two threads at it at once crash the process (seen with msgspec 0.22: a
    segmentation fault when the first orders after a start came together).
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)
