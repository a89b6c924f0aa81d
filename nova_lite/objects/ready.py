"""Preparation of structs for decoding in several threads."""

from __future__ import annotations

import msgspec


def prepare_decoders(*kinds: type[msgspec.Struct]) -> None:
    """Build the decoders of the structs now. It is called at import, where the structs are defined.

    Otherwise msgspec builds a decoder at its first use. Two threads that do so at once crash the process (seen with
    msgspec 0.22).
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)
