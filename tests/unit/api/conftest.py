"""The API with noauth2, over a control plane in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from tests.support.api_client import Client, make_client, make_conf
from tests.support.every_api import EveryApi


@pytest.fixture
def conf(tmp_path: Path) -> cfg.ConfigOpts:
    return make_conf(tmp_path)


@pytest.fixture
def api(conf: cfg.ConfigOpts) -> Client:
    return make_client(conf)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryApi]:
    """Provide all APIs over one conductor."""
    made = EveryApi(tmp_path_factory.mktemp("cloud"))
    yield made
    made.close()
