"""Leaks as devstack/fuzz.sh defines them."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
import types
from types import SimpleNamespace as Bag
from typing import Any

import pytest

FILE = pathlib.Path(__file__).parents[3] / "devstack/lib/fuzzing.py"


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load the hooks without schemathesis; the other project has a server `s2` and a key pair `mark-two-7`."""
    stub = types.ModuleType("schemathesis")
    stub.hook = stub.check = lambda function: function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "schemathesis", stub)
    for name, value in {
        "URL": "http://127.0.0.1:1",
        "TOKEN": "one",
        "MARK": "mark-one",
        "OTHER_TOKEN": "two",
        "OTHER_MARK": "mark-two",
        "FUZZ_SEED": "1",
    }.items():
        monkeypatch.setenv(f"NOVA_LITE_{name}", value)
    spec = importlib.util.spec_from_file_location("fuzzing_hooks", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.others._names = {"servers": ["s2"], "os-keypairs": ["mark-two-7", "0"], "os-server-groups": []}
    return module


def judge(hooks: Any, status: int, text: str, path: str = "/servers", body: str = "", **variables: str) -> None:
    request = Bag(url=f"http://cloud{path.format(**variables)}", body=body)
    response = Bag(request=request, status_code=status, headers={}, text=text)
    hooks.no_leak(None, response, Bag(path=path, path_parameters=variables))


@pytest.mark.parametrize(
    ("status", "text", "path", "variables"),
    [
        (200, '{"servers": [{"id": "s2"}]}', "/servers", {}),
        (200, '{"servers": [{"name": "mark-two-3"}]}', "/servers", {}),
        (409, "key pair mark-two-7 exists", "/os-keypairs", {}),
        (200, "{}", "/servers/{server_id}", {"server_id": "s2"}),
        (204, "", "/os-keypairs/{id}", {"id": "mark-two-7"}),
        (404, "mark-two", "/servers/{server_id}", {"server_id": "s2"}),
    ],
)
def test_leaks(hooks: Any, status: int, text: str, path: str, variables: dict[str, str]) -> None:
    with pytest.raises(AssertionError):
        judge(hooks, status, text, path, **variables)


@pytest.mark.parametrize(
    ("status", "text", "path", "variables"),
    [
        (200, '{"servers": [{"id": "s1", "name": "mark-one-3"}]}', "/servers", {}),
        (404, "Instance s2 could not be found.", "/servers/{server_id}", {"server_id": "s2"}),
        (200, '{"keypair": {"name": "0"}}', "/os-keypairs/{id}", {"id": "0"}),
    ],
)
def test_no_leaks(hooks: Any, status: int, text: str, path: str, variables: dict[str, str]) -> None:
    judge(hooks, status, text, path, **variables)
