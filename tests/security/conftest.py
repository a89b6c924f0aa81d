"""One cloud for all attacks: none of them may leave a trace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional.conftest import broker as broker
from tests.security.attacker import Attacker, SecuredCloud, Tap

SECRET = "I2Nsb3VkLWNvbmZpZwojIHRoZSB2aWN0aW0ncyBzZWNyZXQK"


@pytest.fixture(scope="session")
def cloud(broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCloud]:
    made = SecuredCloud(tmp_path_factory.mktemp("secured"), computes=2)
    try:
        made.make()
        made.start_all()
        yield made
    finally:
        made.destroy()


@pytest.fixture(scope="session")
def servers(cloud: SecuredCloud) -> dict[str, str]:
    """A server on each host, by the host's name; they have user data."""
    ids = {}
    for host in cloud.computes:
        extra = {"availability_zone": f"nova:{host}", "user_data": SECRET}
        (ids[host],) = cloud.create(f"on-{host}", **extra)
    cloud.wait_active(list(ids.values()))
    return ids


@pytest.fixture(scope="session")
def attacker(cloud: SecuredCloud) -> Iterator[Attacker]:
    """``compute-1`` is taken; ``compute-2`` and what it has is what the attacker wants."""
    made = Attacker(cloud, "compute-1")
    yield made
    made.close()


@pytest.fixture
def tap(cloud: SecuredCloud) -> Iterator[Tap]:
    made = Tap(cloud, "conductor", "compute.compute-2")
    yield made
    made.close()
