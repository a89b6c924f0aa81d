"""The identity API: the part of Keystone's v3 API that clients need."""

from __future__ import annotations

import webob

from nova_lite.api.http import deploy, rest
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.identity.app_credentials import AccessRules, AppCredentials
from nova_lite.api.identity.assignments import Assignments, Grants, InheritedGrants
from nova_lite.api.identity.caller import Caller
from nova_lite.api.identity.credentials import Credentials, Ec2Credentials
from nova_lite.api.identity.domains import Domains
from nova_lite.api.identity.faults import fault
from nova_lite.api.identity.federation import Mappings, Protocols, Providers
from nova_lite.api.identity.groups import Groups
from nova_lite.api.identity.limits import Limits, RegisteredLimits
from nova_lite.api.identity.logins import Logins
from nova_lite.api.identity.projects import Projects, ProjectTags
from nova_lite.api.identity.provider_logins import ProviderLogins
from nova_lite.api.identity.roles import ImpliedRoles, Roles
from nova_lite.api.identity.services import Endpoints, Regions, Services
from nova_lite.api.identity.trusts import Trusts
from nova_lite.api.identity.users import Users
from nova_lite.api.identity.versions import Versions


def app_factory(global_conf: dict[str, str], **local_conf: str) -> IdentityApp:
    del global_conf, local_conf
    return IdentityApp(deploy.services())


class IdentityApp(rest.ServiceApplication):
    """WSGI application, mounted at ``/``."""

    api = "identity"
    resources = (
        Versions,
        Logins,
        Caller,
        Users,
        Projects,
        ProjectTags,
        Domains,
        Groups,
        Grants,
        InheritedGrants,
        Assignments,
        Roles,
        ImpliedRoles,
        AppCredentials,
        AccessRules,
        Ec2Credentials,
        Credentials,
        Services,
        Endpoints,
        Regions,
        Trusts,
        Providers,
        Protocols,
        Mappings,
        ProviderLogins,
        RegisteredLimits,
        Limits,
    )

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        return fault(code, message, req.base_url + "/v3")
