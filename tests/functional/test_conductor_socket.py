"""``[rpc] conductor_socket``: the API reads without the broker, and uses it while the conductor is away."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

from tests.functional import cloud
from tests.functional.proxy import Proxy
from tests.support.waiting import wait_for


def test_api_uses_the_socket_and_the_broker_while_the_conductor_is_dead(tmp_path: Path) -> None:
    with Proxy(5672) as broker:
        socket = f"[rpc]\nconductor_socket = {tmp_path}/rpc.sock\n"
        with cloud.running(tmp_path, broker_port=broker.port, extra_config=socket) as running:
            server, *_ = ids = running.create()
            running.wait_active(ids)
            broker.cut()
            assert running.request("GET", f"/servers/{server}").status_code == 200
            broker.restore()

            running.kill("conductor")
            with concurrent.futures.ThreadPoolExecutor(2) as callers:
                waiting = callers.submit(running.request, "GET", f"/servers/{server}")
                wait_for("the API falls back", lambda: "Calls to the conductor use the broker" in running.log("api"))
                running.start("conductor")
                assert waiting.result(60).status_code in (200, 503)
            running.wait_until_ready()
            more = running.create()
            running.wait_active(more)
            assert "Calls to the conductor use" in running.log("api") and "again" in running.log("api")
            running.delete_all()
            wait_for("nothing is left", lambda: running.domains() == {})
            running.audit()
            assert "Traceback" not in running.log("api", 1000)
