"""The handlers of ``/servers``."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import server_password
from nova_lite.api.compute.servers import create, listing, schemas, update, view
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, action, declares
from nova_lite.objects import Instance
from nova_lite.policies import servers as policies


class Servers(Extension):
    alias = "servers"
    title = "Servers"
    routes: tuple[Route, ...] = (
        Route("GET", "/servers", "index"),
        Route("GET", "/servers/detail", "detail"),
        Route("POST", "/servers", "create"),
        Route("GET", "/servers/{id}", "show"),
        Route("PUT", "/servers/{id}", "update"),
        Route("DELETE", "/servers/{id}", "delete"),
        action("servers", "forceDelete", "force_delete"),
    )

    @declares(policies.INDEX, query=schemas.INDEX, response="servers")
    def index(self, req: Request) -> Response:
        instances, links = self._list(req, policies.INDEX_ALL, with_user_data=False)
        return Response({"servers": view.index(req, instances), **links})

    @declares(policies.DETAIL, query=schemas.INDEX, response="servers")
    def detail(self, req: Request) -> Response:
        instances, links = self._list(req, policies.DETAIL_ALL, with_user_data=view.may_show_user_data(req))
        return Response({"servers": view.detail(req, instances), **links})

    @declares(policies.SHOW, query=t.NO_PARAMETERS, response="server")
    def show(self, req: Request, id: str) -> Response:
        return Response({"server": view.show(req, self.conductor.instance_get(req.context, id))})

    @declares(policies.CREATE, body=schemas.CREATE, status=202, response=("server", "reservation_id"))
    def create(self, req: Request) -> Response:
        password = server_password.admin_password(req.data["server"])
        result = self.compute.create(req.context, create.request_of(req, password))
        if strutils.bool_from_string(req.data["server"].get("return_reservation_id", False)):
            return Response({"reservation_id": result.reservation_id}, 202)
        first = result.instances[0]
        # The result of an earlier, identical request comes without the password that was generated then.
        is_unknown = result.earlier and "adminPass" not in req.data["server"]
        shown = password if self.conf.api.enable_instance_password and not is_unknown else None
        location = {"Location": req.link("servers", first.uuid)}
        return Response({"server": view.created(req, first, shown)}, 202, location)

    @declares(policies.UPDATE, body=schemas.UPDATE, response="server")
    def update(self, req: Request, id: str) -> Response:
        instance = self.conductor.instance_update(req.context, id, update.changes_of_body(req, req.data["server"]))
        return Response({"server": view.updated(req, instance)})

    @declares(policies.DELETE, status=204)
    def delete(self, req: Request, id: str) -> Response:
        self.compute.delete(req.context, id, soft=self.conf.reclaim_instance_interval > 0)
        return Response(status=204)

    @declares(policies.FORCE_DELETE, status=202)
    def force_delete(self, req: Request, id: str) -> Response:
        self.compute.delete(req.context, id, soft=False)
        return Response(status=202)

    def _list(self, req: Request, all_rule: str, with_user_data: bool) -> tuple[list[Instance], dict[str, Any]]:
        """Return a page of servers, and the link to the next page."""
        filters = listing.filters_of_query(req, all_rule)
        if filters is None:
            return [], {}
        filters.with_user_data = with_user_data
        keys, dirs = listing.order_of(req)
        limit = req.query.limit
        instances = self.conductor.instance_list(req.context, filters, limit, req.query.marker, keys, dirs)
        return instances, req.next_page("servers_links", instances, limit, lambda instance: instance.uuid)
