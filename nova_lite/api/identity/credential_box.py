"""Encryption of secrets that the service has to know itself: keys of EC2 credentials and of one-time codes.

Their records have the secrets only encrypted. The key is a record of its own, which the first secret makes. Who has the
whole database has both, as with the keys of tokens.
"""

from __future__ import annotations

import logging

from cryptography.fernet import Fernet, InvalidToken

from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import SecretKey
from nova_lite.base import exceptions

LOG = logging.getLogger(__name__)

_ID = "1"


def seal(content: Content, text: str) -> str:
    """Encrypt a secret for a record of ``content``, to which the first call adds the key."""
    key = content.find(SecretKey, _ID)
    if key is None:
        key = SecretKey(id=_ID, key=Fernet.generate_key().decode())
        content.secret_keys.append(key)
    return Fernet(key.key).encrypt(text.encode()).decode()


def open_(content: Content, sealed: str) -> str:
    """Decrypt a secret. Raises `ServiceUnavailable` if its key is not there."""
    key = content.find(SecretKey, _ID)
    try:
        if key is not None:
            return Fernet(key.key).decrypt(sealed.encode()).decode()
    except InvalidToken:
        LOG.error("A secret of a credential was encrypted with another key than the one in the database")
    raise exceptions.ServiceUnavailable("The secret of this credential cannot be read for the moment.")
