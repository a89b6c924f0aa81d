// Fields of the network API that the page reads.
interface Ip {
  ip_address: string;
}

export interface Subnet {
  id: string;
  network_id: string;
  cidr: string;
  gateway_ip: string | null;
}

export interface Network {
  id: string;
  name: string;
  status: string;
  mtu: number;
  shared: boolean;
  "router:external": boolean;
  project_id: string;
  description: string;
  qos_policy_id: string | null;
  created_at: string;
}

export interface Router {
  id: string;
  name: string;
  status: string;
  description: string;
  external_gateway_info: { network_id: string; external_fixed_ips?: Ip[] } | null;
}

export interface Port {
  id: string;
  network_id: string;
  device_id: string;
  device_owner: string;
  project_id: string;
  security_groups: string[];
  mac_address: string;
  status: string;
  fixed_ips: Ip[];
}

export interface FloatingIp {
  id: string;
  status: string;
  description: string;
  floating_ip_address: string;
  fixed_ip_address: string | null;
  port_id: string | null;
  port_forwardings: PortForwarding[];
}

/** Ports of a floating address that lead to ports of a server. Ranges are FIRST:LAST. */
export interface PortForwarding {
  id: string;
  internal_port_id: string;
  internal_ip_address: string;
  internal_port_range: string;
  external_port_range: string;
  protocol: string;
  description: string;
}

export interface QosRule {
  id: string;
  type: string;
  max_kbps?: number;
  direction?: string;
  dscp_mark?: number;
}

export interface QosPolicy {
  id: string;
  name: string;
  description: string;
  shared: boolean;
  rules: QosRule[];
}

/** The way of a packet. `arrives`: null where a port of another project decides. */
export interface Trace {
  packet: string;
  arrives: boolean | null;
  parts: { kind: string; id: string | null; group_id: string | null; passes: boolean | null; text: string }[];
}

export interface SecurityRule {
  id: string;
  direction: "ingress" | "egress";
  ethertype: "IPv4" | "IPv6";
  protocol: string | null;
  port_range_min: number | null;
  port_range_max: number | null;
  remote_ip_prefix: string | null;
  remote_group_id: string | null;
  description: string | null;
}

export interface SecurityGroup {
  id: string;
  name: string;
  description: string;
  security_group_rules: SecurityRule[];
}

export interface NetworkReply {
  networks: Network[];
  network: Network;
  subnets: Subnet[];
  routers: Router[];
  router: Router;
  ports: Port[];
  floatingips: FloatingIp[];
  port_forwardings: PortForwarding[];
  trace: Trace;
  policies: QosPolicy[];
  security_groups: SecurityGroup[];
  security_group: SecurityGroup;
  quota: Record<string, { used: number; limit: number }>;
}
