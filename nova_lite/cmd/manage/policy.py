"""Command ``policy``: list and test rules, from the defaults and the operator's file."""

from __future__ import annotations

import argparse

from oslo_policy import policy as oslo_policy

from nova_lite import policies
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.cmd.manage.app import App, Commands, key_value
from nova_lite.policies.enforcer import Policy


def register(commands: Commands) -> None:
    noun = commands.noun("policy", "Inspect and test policy rules.")
    commands.verb(noun, "list", "List the rules: default, scope, operations.", list_)
    parser = commands.verb(
        noun,
        "check",
        "Check whether a user may do something, by the configured policy file. Exit with 1 if any rule denies it.",
        check,
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("rule", nargs="?", metavar="RULE")
    which.add_argument("--all", action="store_true", help="all rules")
    parser.add_argument("--user", metavar="ID", help="caller's user")
    parser.add_argument("--project", metavar="ID", help="caller's project")
    parser.add_argument("--roles", metavar="ROLE,...", default="", help="caller's roles in that project")
    parser.add_argument(
        "--target",
        type=key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="target attribute, as project_id=ID; may be repeated; default: the caller's user_id and project_id",
    )


def list_(app: App, args: argparse.Namespace) -> None:
    app.show(
        ("Rule", "Default", "Scope", "Operations"),
        ((rule.name, rule.check_str, rule.scope_types or [], _operations(rule)) for rule in policies.list_rules()),
    )


def _operations(rule: oslo_policy.RuleDefault) -> list[str]:
    return [f"{operation['method']} {operation['path']}" for operation in getattr(rule, "operations", [])]


def check(app: App, args: argparse.Namespace) -> int:
    known = [rule.name for rule in policies.list_rules()]
    if args.rule is not None and args.rule not in known:
        raise exceptions.NotFound(f"There is no rule {args.rule}.")
    enforced = Policy(app.conf)
    enforced.check_rules()
    context = _context(args, enforced)
    target = {"user_id": args.user, "project_id": args.project} | dict(args.target)
    rows = [(name, enforced.allows(context, name, target)) for name in (known if args.all else [args.rule])]
    app.show(("Rule", "Verdict"), ((name, "allowed" if allowed else "denied") for name, allowed in rows))
    return 0 if all(allowed for _, allowed in rows) else 1


def _context(args: argparse.Namespace, enforced: Policy) -> RequestContext:
    """Build a context as the API does from a token. The rules decide whether it is an admin's."""
    roles = [role.strip() for role in args.roles.split(",") if role.strip()]
    context = RequestContext(user_id=args.user, project_id=args.project, roles=roles, overwrite=False)
    context.is_admin = enforced.is_admin(context)
    return context
