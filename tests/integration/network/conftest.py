"""Fixtures of tests with real packets between namespaces."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

import pytest

from tests.integration.network import tenants as two_tenants
from tests.integration.network.room import Room
from tests.integration.network.routed_host import RoutedHost


@pytest.fixture
def room() -> Iterator[Room]:
    if os.geteuid() or not all(map(shutil.which, ("ip", "nft"))):
        pytest.skip("needs root, ip and nft")
    made = Room()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def host() -> Iterator[RoutedHost]:
    made = RoutedHost(1)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def hosts(room: Room) -> Iterator[tuple[RoutedHost, RoutedHost]]:
    with contextlib.ExitStack() as stack:
        made = []
        for number in (1, 2):
            host = RoutedHost(number)
            stack.callback(host.close)
            made.append(host)
        one, two = made
        link = ("ip", "link", "add", "under", "type", "veth", "peer", "name", "under", "netns", two.host)
        one.in_space(one.host, *link)
        for host in made:
            host.in_space(host.host, "ip", "address", "add", f"{host.local_ip}/24", "dev", "under")
            host.in_space(host.host, "ip", "link", "set", "under", "up")
        yield one, two


@pytest.fixture
def tenants(hosts: tuple[RoutedHost, RoutedHost]) -> tuple[RoutedHost, RoutedHost]:
    return two_tenants.populate(hosts)
