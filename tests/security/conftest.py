"""Fixtures of one cloud for all attacks. No attack may leave a trace."""

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


def create_servers(cloud: SecuredCloud) -> dict[str, str]:
    """Create a server with user data on each host; return them by host."""
    ids = {}
    for host in cloud.computes:
        extra = {"availability_zone": f"nova:{host}", "user_data": SECRET}
        (ids[host],) = cloud.create(f"on-{host}", **extra)
    cloud.wait_active(list(ids.values()))
    return ids


@pytest.fixture(scope="session")
def servers(cloud: SecuredCloud) -> dict[str, str]:
    return create_servers(cloud)


@pytest.fixture(scope="session")
def attacker(cloud: SecuredCloud) -> Iterator[Attacker]:
    """Take over ``compute-1``; ``compute-2`` is the attacker's target."""
    made = Attacker(cloud, "compute-1")
    yield made
    made.close()


@pytest.fixture
def tap(cloud: SecuredCloud) -> Iterator[Tap]:
    made = Tap(cloud, "conductor", "compute.compute-2")
    yield made
    made.close()
