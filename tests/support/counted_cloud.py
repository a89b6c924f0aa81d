"""A conductor with a scheduler and a host that only record what they get, for counting its statements."""

from __future__ import annotations

from oslo_config import cfg

from nova_lite import objects, rpc
from nova_lite.base.context import RequestContext
from nova_lite.conductor.manager import ConductorManager
from nova_lite.db.core.engine import Database
from nova_lite.db.hosts import hosts
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import flavors
from nova_lite.objects import BuildRequest, Destination, HostState, Placement, RequestSpec, Selection
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC
from tests.support import make


class Cloud:
    """A scheduler with one host, and that host, which only records its commands."""

    def __init__(self) -> None:
        self.builds: list[BuildRequest] = []
        self.announced: list[HostState] = []

    def select_destinations(self, context: RequestContext, spec: RequestSpec) -> list[Destination]:
        selection = Selection(host="h1", node="n1", limits={"vcpus": 4})
        return [
            Destination(instance_uuid=instance_uuid, selected=selection, alternates=[])
            for instance_uuid in spec.instance_uuids
        ]

    def update_host_states(self, context: RequestContext, states: list[HostState]) -> None:
        self.announced += states

    def build_and_run_instance(self, context: RequestContext, request: BuildRequest) -> None:
        self.builds.append(request)

    def build_all(self, context: RequestContext, requests: list[BuildRequest]) -> None:
        self.builds += requests

    def fitting_hosts(self, context: RequestContext, specs: list[RequestSpec]) -> list[list[str]]:
        raise NotImplementedError

    def select_destinations_batch(self, context: RequestContext, specs: list[RequestSpec]) -> list[Placement]:
        return [Placement(destinations=self.select_destinations(context, spec)) for spec in specs]


def serve(db: Database, conf: cfg.ConfigOpts, bus: rpc.InProcess, manager: ConductorManager) -> Cloud:
    """Return a world of one host, a flavor, an image and a network."""
    served = Cloud()
    bus.serve(
        rpc.Endpoint(
            SchedulerRPC,
            {
                name: getattr(served, name)
                for name in ("fitting_hosts", "select_destinations", "select_destinations_batch", "update_host_states")
            },
        )
    )
    bus.serve(
        rpc.Endpoint(
            ComputeRPC,
            {"build_and_run_instance": served.build_and_run_instance, "build_and_run_instances": served.build_all},
            partial=True,
        ),
        "h1",
    )
    db.write(hosts.register_host, conf, make.report())
    db.write(flavors.create, make.flavor())
    db.write(builtin_networks.create, make.network(is_default=True))
    return served


def create(conductor: ConductorRPC, image: objects.Image, count: int = 1) -> list[str]:
    """Create servers, and have their builds scheduled, as the API does."""
    context, uuids = accept(conductor, image, count)
    conductor.build_instances(context, uuids)
    return uuids


def accept(conductor: ConductorRPC, image: objects.Image, count: int = 1) -> tuple[RequestContext, list[str]]:
    """Create servers, and schedule nothing."""
    context = make.context()
    request = objects.CreateRequest(name="vm", flavor_id="1", image_ref=image.id, min_count=count, max_count=count)
    result = conductor.create_instances(context, request)
    return context, [instance.uuid for instance in result.instances]


def finish(conductor: ConductorRPC, build: BuildRequest) -> None:
    assert (build.connected, len(build.instance.vifs)) == ("0/", 1)
    conductor.finish_build(make.ADMIN, report(build))


def report(build: BuildRequest) -> objects.BuildResult:
    return objects.BuildResult(
        instance_uuid=build.instance.uuid,
        generation=build.generation,
        host="h1",
        outcome=objects.BuildOutcome.BUILT,
        power_state=1,
        root_device_name="/dev/vda",
        action_id=build.action_id,
    )
