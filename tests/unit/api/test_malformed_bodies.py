"""Bodies that are no JSON, or not the JSON that is wanted, on each API: one sentence, and never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.every_api import EveryApi

#: A request with a body on each API.
REQUESTS = [
    ("compute", "POST", "/servers"),
    ("identity", "POST", "/v3/auth/tokens"),
    ("image", "POST", "/images"),
    ("image", "PATCH", "/images/{image}"),
    ("volume", "POST", "/volumes"),
    ("network", "POST", "/networks"),
]
BODIES = {
    "cut": b'{"server": {"name": "x"',
    "no JSON": b"name=x",
    "no UTF-8": b'{"name": "\xff\xfe"}',
    "deep": b"[" * 50_000,
    "deep, whole": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "a list": b"[1, 2]",
    "a number": b"7",
    "null": b"null",
    "infinite": b'{"server": 1e999, "auth": 1e999, "volume": 1e999, "network": 1e999, "name": 1e999}',
    "long number": b'{"server": ' + b"9" * 5_000 + b"}",
    "half a character": b'{"server": "\\ud800", "auth": "\\ud800", "volume": "\\ud800", "network": "\\ud800"}',
    "empty": b"",
}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryApi]:
    path: Path = tmp_path_factory.mktemp("cloud")
    made = EveryApi(path)
    yield made
    made.close()


def test_malformed_body_is_a_400_with_a_sentence(cloud: EveryApi, caplog: pytest.LogCaptureFixture) -> None:
    wrong = []
    for service, method, path in REQUESTS:
        path = path.format(image=cloud.things["image"][0])
        for kind, body in BODIES.items():
            response = cloud.send(service, method, path, body)
            text = response.text
            if response.status_code != 400 or "Traceback" in text or not 20 < len(text) < 1000:
                wrong.append((service, method, kind, response.status_code, text[:300]))
    assert wrong == []
    assert "Traceback" not in caplog.text
