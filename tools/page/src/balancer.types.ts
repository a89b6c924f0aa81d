// Fields of the load balancer API that the page reads.
interface Part {
  id: string;
  name: string;
  provisioning_status: string;
  operating_status: string;
}

interface Reference {
  id: string;
}

export interface Balancer extends Part {
  description: string;
  vip_address: string;
  vip_port_id: string;
  vip_subnet_id: string;
  vip_network_id: string;
  listeners: Reference[];
  pools: Reference[];
  created_at: string;
}

export interface Listener extends Part {
  protocol: string;
  protocol_port: number;
  default_pool_id: string | null;
}

export interface Member extends Part {
  address: string;
  protocol_port: number;
  weight: number;
}

export interface Pool extends Part {
  protocol: string;
  lb_algorithm: string;
  healthmonitor_id: string | null;
}

export interface Monitor extends Part {
  type: string;
  delay: number;
  url_path: string | null;
}

export interface BalancerReply {
  loadbalancers: Balancer[];
  loadbalancer: Balancer;
  listeners: Listener[];
  pools: Pool[];
  members: Member[];
  healthmonitors: Monitor[];
  stats: { active_connections: number; total_connections: number };
}
