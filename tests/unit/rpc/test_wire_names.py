"""Renamed RPC methods and arguments, between a daemon of this version and daemons of the versions around it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Protocol

import pytest

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from tests.support.rpc_conf import make_conf

CONTEXT = RequestContext(user_id="u", project_id="p", request_id="req-1")


@rpc.service("scheduler", version="2.0")
class OldRPC(Protocol):
    """The names of the previous version, in which nothing is renamed."""

    def fetch(self, context: RequestContext, what: str) -> str: ...


@rpc.service("scheduler", version="2.0")
class RenamedRPC(Protocol):
    """The names of this version: it sends the old names."""

    @rpc.method(wire_name="fetch")
    def get(self, context: RequestContext, name: Annotated[str, rpc.WireName("what")]) -> str: ...


@rpc.service("scheduler", version="2.0")
class NextRPC(Protocol):
    """The names of the next version, which sends the new names."""

    def get(self, context: RequestContext, name: str) -> str: ...


class Old:
    def fetch(self, context: RequestContext, what: str) -> str:
        return what.upper()


class New:
    def get(self, context: RequestContext, name: str) -> str:
        return name.upper()


def serve(tmp_path: Path, protocol: type, target: Any) -> rpc.InProcess:
    transport = rpc.InProcess(make_conf(tmp_path))
    transport.serve(rpc.Endpoint(protocol, target))
    return transport


@pytest.mark.parametrize(("server", "target"), [(OldRPC, Old()), (RenamedRPC, New())])
def test_renamed_method_is_sent_under_its_old_name(tmp_path: Path, server: type, target: Any) -> None:
    assert rpc.proxy(RenamedRPC, serve(tmp_path, server, target)).get(CONTEXT, name="a") == "A"


def test_renamed_method_is_served_under_both_names(tmp_path: Path) -> None:
    transport = serve(tmp_path, RenamedRPC, New())
    assert rpc.proxy(OldRPC, transport).fetch(CONTEXT, what="a") == "A"
    assert rpc.proxy(NextRPC, transport).get(CONTEXT, name="a") == "A"
