"""The version is that of the installed package."""

from __future__ import annotations

from importlib import metadata

import pytest

from nova_lite.base import version
from nova_lite.db.core import models


@pytest.mark.parametrize(
    ("installed", "known"),
    [
        ("1.2.3", "1.2.3"),
        ("0.2.0.dev924+g39a23e23a.d20261126", "0.2.0.dev924+g39a23e23a.d2026112"),
        (None, "0+unknown"),
    ],
)
def test_version_is_that_of_the_package_and_fits_into_records(
    monkeypatch: pytest.MonkeyPatch, installed: str | None, known: str
) -> None:
    def found(name: str) -> str:
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(metadata, "version", found)
    assert version._installed() == known
    assert len(known) <= models.Service.__table__.c.version.type.length
