"""Package docstrings of the standalone services: every path in them exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import nova_lite

ROOT = Path(nova_lite.__file__).parent
SERVICES = ("nova_lite.api.identity", "nova_lite.image", "nova_lite.metadata", "nova_lite.network", "nova_lite.volume")
#: Shorter than one screen of a terminal.
MOST_LINES = 66


@pytest.mark.parametrize("name", SERVICES)
def test_service_map_paths_exist(name: str) -> None:
    text = importlib.import_module(name).__doc__ or ""
    paths = [ROOT / path for path in re.findall(r"^    (\S+/\S*)  ", text, re.MULTILINE)]
    tests = [ROOT.parent / path for path in re.findall(r"``(tests/[^`]+)``", text)]
    assert len(paths) >= 8
    assert [path for path in (*paths, *tests) if not path.exists()] == []


@pytest.mark.parametrize("name", SERVICES)
def test_service_map_fits_on_one_screen(name: str) -> None:
    assert len((importlib.import_module(name).__doc__ or "").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("service", ["identity", "image", "network", "volume"])
def test_service_api_has_the_common_modules(service: str) -> None:
    names = {path.stem for path in (ROOT / "api" / service).glob("*.py")}
    assert names >= {"app", "listing", "requests", "versions", "views"}


@pytest.mark.parametrize(("service", "openstack"), [("image", "glance"), ("network", "neutron"), ("volume", "cinder")])
def test_service_backend_has_the_common_modules(service: str, openstack: str) -> None:
    names = {path.stem for path in (ROOT / service).glob("*.py")}
    assert names >= {"driver", "local", openstack, f"{openstack}_client"}
