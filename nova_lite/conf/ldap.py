"""``[ldap]``: the directory server that has the users and groups of a domain of the built-in identity service."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

GROUP = "ldap"

OPTS = [
    cfg.ListOpt(
        "urls",
        default=[],
        help=(
            "URLs of the directory's servers: ldaps://HOST, or ldap://HOST with StartTLS. If one does not answer, the "
            "next one is used. Empty: users are in the database only. Set it to let users of a directory log in."
        ),
    ),
    cfg.StrOpt(
        "domain",
        default="",
        help=(
            "Name of the domain that has the directory's users and groups. It cannot be the default domain. Set it "
            "with urls."
        ),
    ),
    cfg.BoolOpt(
        "start_tls",
        default=True,
        help=(
            "Encrypt connections to ldap:// URLs by StartTLS. Without it, a URL must be on this machine. Change it for "
            "a proxy on this machine that encrypts."
        ),
    ),
    cfg.StrOpt(
        "ca_file",
        default="",
        help=(
            "File with the certificates of the authorities that sign for the servers. Empty: those of the system. Set "
            "it for an authority of your own. The servers' certificates are always verified."
        ),
    ),
    cfg.StrOpt(
        "bind_dn",
        default="",
        help=(
            "DN of the user who searches the directory, and only needs to read. Empty: searches are anonymous. Set it "
            "for a directory that refuses anonymous searches."
        ),
    ),
    cfg.StrOpt(
        "password_file",
        default="",
        help="File with the password of bind_dn. Only the API daemon's user may read it. Set it with bind_dn.",
    ),
    cfg.StrOpt("user_tree", default="", help="DN of the entry below which the users are. Set it with urls."),
    cfg.StrOpt(
        "user_filter",
        default="(objectClass=inetOrgPerson)",
        help=(
            "Filter of LDAP for users who may log in. Change it for another class of entries, or to except users who "
            "are locked."
        ),
    ),
    cfg.StrOpt(
        "user_id_attribute",
        default="entryUUID",
        help=(
            "Attribute with an id that a user keeps for ever and no other user ever gets. Ids of users are made of it. "
            "Change it to objectGUID for Active Directory, before the first log-in."
        ),
    ),
    cfg.StrOpt(
        "user_name_attribute",
        default="uid",
        help="Attribute with the name by which a user logs in. Change it to sAMAccountName for Active Directory.",
    ),
    cfg.StrOpt(
        "user_mail_attribute",
        default="mail",
        help="Attribute with a user's e-mail address. Empty: addresses are not shown. Change it if yours is another.",
    ),
    cfg.StrOpt(
        "group_tree",
        default="",
        help=(
            "DN of the entry below which the groups are. Empty: no group is read. Set it to grant roles to groups of "
            "the directory."
        ),
    ),
    cfg.StrOpt(
        "group_filter",
        default="(objectClass=groupOfNames)",
        help="Filter of LDAP for groups. Change it to (objectClass=group) for Active Directory.",
    ),
    cfg.StrOpt(
        "group_id_attribute",
        default="entryUUID",
        help="Attribute with an id that a group keeps for ever. Change it to objectGUID for Active Directory.",
    ),
    cfg.StrOpt(
        "group_name_attribute", default="cn", help="Attribute with a group's name. Change it if yours is another."
    ),
    cfg.StrOpt(
        "group_member_attribute",
        default="member",
        help="Attribute of a group with its members. Change it to memberUid for posixGroup.",
    ),
    cfg.BoolOpt(
        "group_members_are_names",
        default=False,
        help="The members of groups are names of users, not DNs. Change it to true for posixGroup.",
    ),
    cfg.IntOpt(
        "list_limit",
        default=1000,
        min=1,
        help=(
            "Largest number of users or groups that a list reads from the directory. The rest appear when they log in. "
            "Raise it if an admin has to see more of them."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {GROUP: OPTS}
