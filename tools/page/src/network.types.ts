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
  security_groups: SecurityGroup[];
  security_group: SecurityGroup;
  quota: Record<string, { used: number; limit: number }>;
}
