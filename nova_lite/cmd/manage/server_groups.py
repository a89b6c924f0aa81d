"""Command ``server-group``: groups with affinity or anti-affinity policies."""

from __future__ import annotations

import argparse

from nova_lite.base.context import RequestContext
from nova_lite.cmd.manage import accounts
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.db.servers import server_groups
from nova_lite.objects import ServerGroup
from nova_lite.objects.server_group import MAX_PER_HOST


def register(commands: Commands) -> None:
    noun = commands.noun("server-group", "Create, list and delete server groups.")
    create_ = commands.verb(noun, "create", "Create a project's server group and print its id.", create)
    create_.add_argument("name")
    create_.add_argument("--project", required=True, help="id or name")
    create_.add_argument("--policy", required=True, choices=server_groups.POLICIES)
    create_.add_argument("--max-per-host", type=at_least(1), metavar="N", help="limit of an anti-affinity policy")
    commands.verb(noun, "list", "List the server groups of all projects.", list_)
    delete_ = commands.verb(noun, "delete", "Delete a server group; its servers stay.", delete)
    delete_.add_argument("id")


def create(app: App, args: argparse.Namespace) -> None:
    rules = {} if args.max_per_host is None else {MAX_PER_HOST: args.max_per_host}
    project_id = accounts.project_id(app, args.project)
    context = RequestContext(user_id="", project_id=project_id, is_admin=True, overwrite=False)
    group = ServerGroup(name=args.name, policy=args.policy, rules=rules)
    print(app.db.write(server_groups.create, app.conf, context, group).id)


def list_(app: App, args: argparse.Namespace) -> None:
    app.show(
        ("ID", "Name", "Project", "Policy", "Rules", "Members"),
        [
            (group.id, group.name, group.project_id, group.policy, group.rules, group.members)
            for group in app.db.read(server_groups.list_, app.context, all_projects=True)
        ],
    )


def delete(app: App, args: argparse.Namespace) -> None:
    app.db.write(server_groups.delete, app.context, args.id)
