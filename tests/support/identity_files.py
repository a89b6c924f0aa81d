"""The files in which earlier versions had users and keys of tokens."""

from __future__ import annotations

from pathlib import Path

from cryptography.fernet import Fernet


def write_files(path: Path, password_hash: str, name: str = "alice") -> Path:
    """Write a users file with a member of one project, and two keys. Returns ``path``."""
    file = path / "users.yaml"
    file.write_text(
        f"""projects:
- {{id: p, name: demo, description: '', enabled: true}}
users:
- id: u
  name: {name}
  password: {password_hash}
  roles: {{p: [member]}}
"""
    )
    file.chmod(0o640)
    write_keys(path / "identity")
    return path


def write_keys(tokens_path: Path) -> None:
    keys = tokens_path / "keys"
    keys.mkdir(parents=True, exist_ok=True, mode=0o700)
    for number in (1, 2):
        key = keys / str(number)
        key.write_bytes(Fernet.generate_key())
        key.chmod(0o600)
