"""Errors of networks, ports, addresses, and security groups."""

from __future__ import annotations

from nova_lite.base.exceptions.base import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NovaLiteException,
    PreconditionFailed,
    ServiceUnavailable,
)


class FixedIpNotFoundForInstance(Invalid):
    msg_fmt = "Instance %(instance_uuid)s does not have fixed IP '%(ip)s'."


class NetworkUnavailable(Invalid):
    msg_fmt = "Network %(network_id)s could not be found."


class NetworkRequiresSubnet(Invalid):
    msg_fmt = "Network %(network_id)s requires a subnet in order to boot instances on."


class PortUnavailable(Invalid):
    """A port in a request body that does not exist, or belongs to another project."""

    msg_fmt = "Port %(port_id)s could not be found."


class NetworkAmbiguous(Invalid):
    msg_fmt = "Multiple possible networks found, use a Network ID to be more specific."


class PortRequiresFixedIP(Invalid):
    msg_fmt = "Port %(port_id)s requires a FixedIP in order to be used."


class InterfaceAttachPciClaimFailed(Invalid):
    msg_fmt = "Failed to claim PCI device for port %(port_id)s attached to instance %(uuid)s: its host has none left."


class SecurityGroupUnavailable(Invalid):
    msg_fmt = "Unable to find security_group with name or id %(name)s"


class SecurityGroupExists(Invalid):
    msg_fmt = "Security group %(name)s already exists for project %(project_id)s."


class SecurityGroupInUse(Invalid):
    msg_fmt = "Security group %(name)s is in use: %(by)s."


class SecurityGroupFixed(Invalid):
    msg_fmt = "The default security group can be neither renamed nor deleted, and stays stateful."


class SecurityGroupRuleExists(Invalid):
    msg_fmt = "Security group rule already exists. Rule id is %(rule_id)s."


class SecurityGroupRuleInvalid(Invalid):
    msg_fmt = "%(reason)s"


class FixedIpInUse(Invalid):
    msg_fmt = "Fixed IP address %(address)s is already in use on network %(network_id)s."


class FixedIpInvalid(Invalid):
    msg_fmt = "Fixed IP %(address)s is not a valid ip address for network %(network_id)s."


class FixedIpForbidden(Forbidden):
    msg_fmt = (
        "Network %(network_id)s is not your project's, so you cannot choose an address on it. Leave the choice to the "
        "network service."
    )


class ExternalNetworkForbidden(Forbidden):
    msg_fmt = (
        "It is not allowed to create an interface on external network %(network_id)s. Give the server a port on "
        "another network, and a floating address of this one."
    )


class PortLimitExceeded(Forbidden):
    msg_fmt = (
        "Maximum number of ports exceeded: Requested %(requested)s, but already used %(used)s of %(allowed)s ports"
    )


class FloatingIpNotFound(NotFound):
    msg_fmt = "Floating IP %(reference)s could not be found."


class FloatingIpPoolNotFound(NotFound):
    msg_fmt = "Floating IP pool %(pool)s not found."


class NoMoreFloatingIps(NotFound):
    msg_fmt = "No more floating IPs in pool %(pool)s."


class NoSuchPort(NotFound):
    msg_fmt = "Port %(port_id)s could not be found."


class SubnetNotFound(NotFound):
    msg_fmt = "Subnet %(subnet_id)s could not be found."


class PortNotFound(NotFound):
    msg_fmt = "Instance %(instance_id)s does not have a port with id %(port_id)s"


class SecurityGroupNotFound(NotFound):
    msg_fmt = "Security group %(group_id)s not found."


class SecurityGroupRuleNotFound(NotFound):
    msg_fmt = "Security group rule %(rule_id)s not found."


class SecurityGroupNotAssociated(NotFound):
    msg_fmt = "Security group %(name)s is not associated with the instance %(instance_id)s"


class NetworkNotFound(NotFound):
    msg_fmt = "Network %(network_id)s could not be found."


class NetworkExists(Conflict):
    msg_fmt = "Network %(name)s already exists."


class NetworkTagNotFound(NotFound):
    msg_fmt = "Tag %(tag)s could not be found."


class RouterNotFound(NotFound):
    msg_fmt = "Router %(router_id)s could not be found."


class RouterInterfaceNotFound(NotFound):
    msg_fmt = "Router %(router_id)s does not have an interface with id %(port_id)s"


class RouterInterfaceNotFoundForSubnet(NotFound):
    msg_fmt = "Router %(router_id)s has no interface on subnet %(subnet_id)s"


class RouterInUse(Conflict):
    msg_fmt = "Router %(router_id)s still has ports"


class RouterInterfaceInUseByFloatingIp(Conflict):
    msg_fmt = (
        "Router interface for subnet %(subnet_id)s on router %(router_id)s cannot be deleted, as it is required by one "
        "or more floating IPs."
    )


class RouterGatewayInUseByFloatingIp(Conflict):
    msg_fmt = (
        "Gateway cannot be updated for router %(router_id)s, since a gateway to external network %(network_id)s is "
        "required by one or more floating IPs."
    )


class RouterPort(Conflict):
    """A port that only calls about its router may change or delete."""

    msg_fmt = "Port %(port_id)s cannot be changed directly via the port API: has device owner network:router_interface."


class ExternalGatewayMissing(Invalid):
    """A floating address needs a router with a gateway to its external network."""

    msg_fmt = (
        "External network %(network_id)s is not reachable from subnet %(subnet_id)s. Therefore, cannot associate Port "
        "%(port_id)s with a Floating IP."
    )


class FloatingIpNotAssociated(Conflict):
    msg_fmt = "Floating IP %(address)s is not associated with instance %(instance_id)s."


class NetworkInUse(Conflict):
    msg_fmt = "Network %(name)s still has addresses in use. There are one or more ports still in use on the network."


class OverlappingAllocationPools(Conflict):
    msg_fmt = "Found overlapping allocation pools: %(pool_1)s %(pool_2)s for subnet %(subnet_cidr)s."


class GatewayConflictWithAllocationPools(Conflict):
    msg_fmt = "Gateway ip %(ip_address)s conflicts with allocation pool %(pool)s."


class HostRoutesExhausted(Invalid):
    msg_fmt = "Unable to complete operation for %(subnet_id)s. The number of host routes exceeds the limit %(quota)s."


class GatewayIpInUse(Conflict):
    msg_fmt = "Current gateway ip %(ip_address)s already in use by port %(port_id)s. Unable to update."


class AllowedAddressPairExhausted(Invalid):
    msg_fmt = "The number of allowed address pair exceeds the maximum %(quota)s."


class DuplicateAddressPairInRequest(Invalid):
    msg_fmt = "Request contains duplicate address pair: mac_address %(mac_address)s ip_address %(ip_address)s."


class AddressPairAndPortSecurityRequired(Conflict):
    msg_fmt = "Port Security must be enabled in order to have allowed address pairs on a port."


class PortSecurityRequiredForGroups(Invalid):
    msg_fmt = "Port security must be enabled and port must have an IP address in order to use security groups."


class PortSecurityPortHasSecurityGroup(Conflict):
    msg_fmt = (
        "Port has security group associated. Cannot disable port security or IP address until security group is "
        "removed."
    )


class InvalidRoutes(Invalid):
    msg_fmt = "Invalid format for routes: %(route)s, %(reason)s"


class RoutesExhausted(Invalid):
    msg_fmt = "Unable to complete operation for %(router_id)s. The number of routes exceeds the maximum %(quota)s."


class RouterInterfaceInUseByRoute(Conflict):
    msg_fmt = (
        "Router interface for subnet %(subnet_id)s on router %(router_id)s cannot be deleted, as it is required by one "
        "or more routes."
    )


class PortInUse(Conflict):
    msg_fmt = "Port %(port_id)s is still in use."


class MacAddressInUse(Conflict):
    msg_fmt = "MAC address %(mac_address)s is in use."


class FloatingIpPortTaken(Conflict):
    msg_fmt = "Cannot associate floating IP %(address)s with port %(port_id)s: %(other)s leads there already."


class NoServiceSubnet(Conflict):
    msg_fmt = (
        "Network %(network_id)s has no subnet for ports of the owner '%(owner)s': set device_owner to one of the "
        "service_types of its subnets."
    )


class SecurityGroupConflict(Conflict):
    msg_fmt = "Security groups of one port are all stateful or all stateless, and %(names)s are of both kinds."


class SecurityGroupAmbiguous(Conflict):
    msg_fmt = "Multiple security groups found matching '%(name)s'. Use an ID to be more specific."


class NoMoreFixedIps(Conflict):
    msg_fmt = "No fixed IP addresses are left on network %(network_id)s."


class NetworkServiceUnavailable(ServiceUnavailable):
    msg_fmt = "The network service did not answer. Please try again."


class RevisionNumberConstraintFailed(PreconditionFailed):
    msg_fmt = "Constrained to %(expected)s, but current revision is %(current)s"


class RbacPolicyNotFound(NotFound):
    msg_fmt = "RBAC policy with ID %(policy_id)s not found"


class RbacObjectNotFound(Invalid):
    msg_fmt = "PolicyInit error: %(object_type)s %(object_id)s could not be found among the own ones."


class RbacPolicyExists(Conflict):
    msg_fmt = "An RBAC policy already exists with those values for %(object_id)s."


class RbacPolicyInUse(Conflict):
    msg_fmt = "RBAC policy on object %(object_id)s cannot be removed because other objects depend on it."


class SubnetPoolNotFound(NotFound):
    msg_fmt = "Subnet pool %(subnetpool_id)s could not be found."


class SubnetPoolInUse(Invalid):
    msg_fmt = "Unable to delete subnet pool: Subnet pool has existing allocations"


class SubnetPoolInvalid(Invalid):
    msg_fmt = "%(reason)s"


class SubnetPoolQuotaExceeded(Conflict):
    msg_fmt = "Per-tenant subnet pool prefix quota exceeded."


class SubnetAllocationError(Invalid):
    msg_fmt = "Failed to allocate subnet: %(reason)s."


class AddressScopeNotFound(NotFound):
    msg_fmt = "Address scope %(address_scope_id)s could not be found."


class AddressScopeInUse(Conflict):
    msg_fmt = (
        "Unable to complete operation on address scope %(address_scope_id)s. There are one or more subnet pools in use "
        "on the address scope"
    )


class AddressScopePrefixConflict(Conflict):
    msg_fmt = "Failed to associate address scope: subnetpools within an address scope must have unique prefixes."


class AddressGroupNotFound(NotFound):
    msg_fmt = "Address group %(address_group_id)s could not be found."


class AddressGroupInUse(Conflict):
    msg_fmt = "Address group %(address_group_id)s is in use on one or more security group rules."


class AddressesAlreadyExist(Invalid):
    msg_fmt = "Addresses %(addresses)s already exist in the address group %(address_group_id)s."


class AddressesNotFound(NotFound):
    msg_fmt = "Addresses %(addresses)s not found in the address group %(address_group_id)s."


class QosPolicyNotFound(NotFound):
    msg_fmt = "QoS policy %(policy_id)s could not be found."


class QosRuleNotFound(NotFound):
    msg_fmt = "QoS rule %(rule_id)s for policy %(policy_id)s could not be found."


class QosPolicyDefaultAlreadyExists(Conflict):
    msg_fmt = "A default QoS policy exists for project %(project_id)s."


class QosPolicyInUse(Conflict):
    msg_fmt = "QoS Policy %(policy_id)s is used by %(object_type)s %(object_id)s."


class QoSRulesConflict(Conflict):
    msg_fmt = "Rule %(new_rule_type)s conflicts with rule %(rule_id)s which already exists in QoS Policy %(policy_id)s."


class PolicyRemoveAuthorizationError(Forbidden):
    msg_fmt = "Failed to remove provided policy %(policy_id)s because you are not authorized."


class PortForwardingNotFound(NotFound):
    msg_fmt = "Port Forwarding %(id)s could not be found."


class PortForwardingInvalid(Invalid):
    msg_fmt = "Bad port_forwarding request: %(reason)s."


class PortHasPortForwarding(Invalid):
    msg_fmt = "Cannot associate floating IP to port %(port_id)s because it already has a Port Forwarding binding."


class FipInUseByPortForwarding(Conflict):
    msg_fmt = "Floating IP %(id)s in use by Port Forwarding resources."


class PortHasBindingFloatingIP(Conflict):
    msg_fmt = "Cannot create port forwarding to port %(port_id)s, as floating IP %(address)s leads there already."


class ProviderUnsupportedOption(NovaLiteException):
    msg_fmt = "Provider 'haproxy' does not support a requested option: %(option)s. %(reason)s"
    code = 501


class FloatingIpLeadsToPort(Conflict):
    msg_fmt = "Floating IP %(address)s leads to port %(port_id)s, so it has no port forwardings."


class TrunkNotFound(NotFound):
    msg_fmt = "Trunk %(trunk_id)s could not be found."


class SubPortNotFound(NotFound):
    msg_fmt = "SubPort %(port_id)s on trunk %(trunk_id)s could not be found."


class TrunkPortInUse(Conflict):
    msg_fmt = "Port %(port_id)s is in use by another trunk."


class ParentPortInUse(Conflict):
    msg_fmt = "Port %(port_id)s is currently in use and is not eligible for use as a parent port."


class DuplicateSubPort(Conflict):
    msg_fmt = "segmentation_type vlan and segmentation_id %(segmentation_id)s already in use on trunk %(trunk_id)s."


class SubPortMtuGreaterThanTrunkPortMtu(Conflict):
    msg_fmt = "MTU %(port_mtu)s of subport %(port_id)s cannot be greater than MTU %(trunk_mtu)s of trunk %(trunk_id)s."


class PortInUseAsTrunkParent(Conflict):
    msg_fmt = "Port %(port_id)s is currently a parent port for trunk %(trunk_id)s."


class PortInUseAsSubPort(Conflict):
    msg_fmt = "Port %(port_id)s is currently a subport for trunk %(trunk_id)s."


class TrunkDisabled(Conflict):
    msg_fmt = "Trunk %(trunk_id)s is currently disabled."
