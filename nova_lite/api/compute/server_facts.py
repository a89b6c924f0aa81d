"""Parts of a server under URLs of their own: addresses, metadata and tags, to be read."""

from __future__ import annotations

from nova_lite import exception
from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import servers as views
from nova_lite.api.microversions import Change
from nova_lite.api.wsgi import ANY_KEY, Answer, Extension, Request, Route, declares
from nova_lite.objects import Instance
from nova_lite.policies import servers as policies

_SERVER = "/servers/{server_id}"


class ServerFacts(Extension):
    alias = "server-facts"
    title = "Addresses, metadata and tags of a server"
    routes = (
        Route("GET", _SERVER + "/ips", "ips"),
        Route("GET", _SERVER + "/ips/{label}", "ips_of_network"),
        Route("GET", _SERVER + "/metadata", "metadata"),
        Route("GET", _SERVER + "/metadata/{key}", "metadata_item"),
        Route("GET", _SERVER + "/tags", "tags", since=Change.SERVER_TAGS),
        Route("GET", _SERVER + "/tags/{tag}", "has_tag", since=Change.SERVER_TAGS),
    )

    @declares(policies.IPS_INDEX, query=queries.NOTHING, answer="addresses")
    def ips(self, req: Request, server_id: str) -> Answer:
        req.authorize(policies.IPS_INDEX)
        req.query(queries.NOTHING)
        return Answer({"addresses": views.addresses(self._get(req, server_id))})

    @declares(policies.IPS_SHOW, query=queries.NOTHING, answer=ANY_KEY)
    def ips_of_network(self, req: Request, server_id: str, label: str) -> Answer:
        req.authorize(policies.IPS_SHOW)
        req.query(queries.NOTHING)
        networks = views.addresses(self._get(req, server_id))
        if label not in networks:
            raise exception.NotFound("Instance is not a member of specified network")
        return Answer({label: networks[label]})

    @declares(policies.METADATA_INDEX, query=queries.NOTHING, answer="metadata")
    def metadata(self, req: Request, server_id: str) -> Answer:
        req.authorize(policies.METADATA_INDEX)
        req.query(queries.NOTHING)
        return Answer({"metadata": self._get(req, server_id).metadata})

    @declares(policies.METADATA_SHOW, query=queries.NOTHING, answer="meta")
    def metadata_item(self, req: Request, server_id: str, key: str) -> Answer:
        req.authorize(policies.METADATA_SHOW)
        req.query(queries.NOTHING)
        metadata = self._get(req, server_id).metadata
        if key not in metadata:
            raise exception.NotFound("Metadata item was not found")
        return Answer({"meta": {key: metadata[key]}})

    @declares(policies.TAGS_INDEX, query=queries.NOTHING, answer="tags")
    def tags(self, req: Request, server_id: str) -> Answer:
        req.authorize(policies.TAGS_INDEX)
        req.query(queries.NOTHING)
        return Answer({"tags": self._get(req, server_id).tags})

    @declares(policies.TAGS_SHOW, query=queries.NOTHING, status=204)
    def has_tag(self, req: Request, server_id: str, tag: str) -> Answer:
        req.authorize(policies.TAGS_SHOW)
        req.query(queries.NOTHING)
        if tag not in self._get(req, server_id).tags:
            raise exception.NotFound(f"Server {server_id} has no tag '{tag}'")
        return Answer(status=204)

    def _get(self, req: Request, server_id: str) -> Instance:
        instance: Instance = self.conductor.instance_get(req.context, server_id)
        return instance
