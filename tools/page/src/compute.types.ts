// The compute API: requests by its OpenAPI document, and the fields of replies that the page reads. The document names
// the keys of replies, and no fields of them.
import type { paths } from "../generated/compute";

// --- requests

/** A path of the document, with any text in place of each variable. */
type Filled<P extends string> = P extends `${infer Head}{${string}}${infer Tail}`
  ? `${Head}${string}${Filled<Tail>}`
  : P;
type Bare<P extends string> = P extends `${infer Path}?${string}` ? Path : P;
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
/** The document's name of a path. */
export type Documented<P extends string> = {
  [K in keyof paths]: Same<Filled<K>, Bare<P>> extends true ? K : never;
}[keyof paths];

/** What a request to a path has as its body. */
export type Body<P extends string, M extends string> = paths[Documented<P>] extends {
  [K in Lowercase<M>]: { requestBody: { content: { "application/json": infer B } } };
}
  ? B
  : undefined;

type Key<T> = T extends unknown ? keyof T : never;
/** An action on a server, and what it takes. */
export type ServerAction = Body<`/servers/${string}/action`, "POST">;
type ActionName = Key<ServerAction> & string;
/** An action that takes nothing. */
export type PlainAction = {
  [N in ActionName]: null extends Extract<ServerAction, Record<N, unknown>>[N] ? N : never;
}[ActionName];

export type NewServer = Body<"/servers", "POST">;
export type NewPolicy = Body<"/os-backup-policies", "POST">;

// --- replies

export interface Address {
  addr: string;
  "OS-EXT-IPS:type"?: string;
}

export interface Server {
  id: string;
  name: string;
  status: string;
  host_status?: string;
  tenant_id: string;
  created: string;
  updated: string;
  addresses: Record<string, Address[]>;
  flavor: { original_name: string; vcpus: number; ram: number; disk: number; ephemeral?: number; swap?: number };
  image: { id: string } | "" | null;
  key_name: string | null;
  metadata: Record<string, string>;
  description: string | null;
  tags?: string[];
  locked: boolean;
  locked_reason?: string | null;
  server_groups?: string[];
  security_groups?: { name: string }[];
  fault?: { message: string; created: string; details?: string };
  "OS-EXT-STS:vm_state": string;
  "OS-EXT-STS:task_state": string | null;
  "OS-EXT-SRV-ATTR:host"?: string | null;
  "OS-EXT-AZ:availability_zone"?: string;
}

export interface Flavor {
  id: string;
  name: string;
  vcpus: number;
  ram: number;
  disk: number;
  "OS-FLV-EXT-DATA:ephemeral": number;
  "os-flavor-access:is_public": boolean;
  extra_specs?: Record<string, string>;
}

export interface Event {
  event: string;
  host?: string | null;
  start_time: string;
  finish_time: string | null;
  result: string | null;
  details?: string | null;
  traceback?: string | null;
}

export interface InstanceAction {
  action: string;
  request_id: string;
  message: string | null;
  start_time: string;
  updated_at: string | null;
  events?: Event[];
}

export interface Attachment {
  volumeId: string;
  device: string | null;
  delete_on_termination: boolean;
}

export interface Interface {
  port_id: string;
  net_id: string;
  mac_addr: string;
  port_state: string;
  fixed_ips: { ip_address: string }[];
}

export interface SecurityGroupOfServer {
  id: string;
  name: string;
  rules: unknown[];
}

export interface Daemon {
  id: string;
  binary: string;
  host: string;
  zone: string;
  state: string;
  status: string;
  forced_down: boolean;
  disabled_reason: string | null;
  updated_at: string | null;
}

export interface Hypervisor {
  id: string;
  service: { host: string };
  host_ip: string;
  hypervisor_type: string;
  hypervisor_version: number;
  cpu_info?: { model?: string };
  running_vms: number;
  vcpus: number;
  vcpus_used: number;
  memory_mb: number;
  memory_mb_used: number;
  local_gb: number;
  local_gb_used: number;
}

export interface Move {
  id: number;
  instance_uuid: string;
  status: string;
  migration_type: string | null;
  source_compute: string | null;
  dest_compute: string | null;
  created_at: string;
  updated_at: string | null;
}

export interface KeyPair {
  name: string;
  type: string;
  fingerprint: string;
  public_key: string;
  created_at?: string;
}

export interface ServerGroup {
  id: string;
  name: string;
  policy: Body<"/os-server-groups", "POST">["server_group"]["policy"];
  members: string[];
}

export interface Aggregate {
  id: number;
  name: string;
  availability_zone: string | null;
  hosts: string[];
  metadata: Record<string, string>;
}

export interface AuditEvent {
  id: string;
  eventTime: string;
  action: string;
  outcome: string;
  reason: { reasonCode: string };
  target: { typeURI: string; id: string };
  initiator: { id: string; host: { address?: string } };
}

export interface BackupPolicy {
  id: string;
  name: string;
  enabled: boolean;
  schedule: { every: string; minute?: number | null; hour?: number | null; weekday?: string | null };
  retention: { hourly?: number; daily?: number; weekly?: number };
  targets: { servers: string[]; tags: string[]; all: boolean };
  window: { not_before?: string | null; not_after?: string | null };
  next_run_at: string | null;
}

export interface ServerProtection {
  server_id: string;
  name: string;
  met: boolean;
  last_backup: { finished_at: string } | null;
  last_failure: { reason: string } | null;
}

export interface PolicyStatus {
  id: string;
  name: string;
  met: boolean;
  servers: ServerProtection[];
}

export interface Backup {
  id: string;
  server_id: string;
  server_name: string | null;
  policy_id: string | null;
  status: string;
  reason: string | null;
  size: number | null;
  finished_at: string | null;
  image_id: string | null;
  restore_status: string | null;
  restore_reason: string | null;
}

export interface ComputeLimits {
  maxTotalInstances: number;
  totalInstancesUsed: number;
  maxTotalCores: number;
  totalCoresUsed: number;
  maxTotalRAMSize: number;
  totalRAMUsed: number;
  maxServerGroups: number;
  totalServerGroupsUsed: number;
}

interface Usage {
  in_use: number;
  limit: number;
}

export interface Measures {
  state: string | null;
  driver: string;
  uptime: number | null;
  num_cpus: number;
  num_disks: number;
  num_nics: number;
  memory_details: { maximum: number | null; used: number | null };
  cpu_details: { time: number | null }[];
  nic_details: { rx_octets: number | null; tx_octets: number | null }[];
  disk_details: { read_bytes: number | null; write_bytes: number | null }[];
}

export type Series = (number | null)[];

/** Use in equal steps, of `step` seconds each. Null: not measured. */
export interface UsageHistory {
  start: string;
  step: number;
  vcpus: number;
  memory_mb: number;
  series: Record<"cpu" | "memory_mb" | "disk_read_rate" | "disk_write_rate" | "rx_rate" | "tx_rate", Series>;
}

/** Keys of replies. Each reply has the ones of its path; a reply of measures has no key. */
/** Hours of a project's servers, by what they had. */
export interface ProjectUsage {
  tenant_id: string;
  total_hours: number;
  total_vcpus_usage: number;
  total_memory_mb_usage: number;
  total_local_gb_usage: number;
}

export interface ServerUsage {
  instance_id: string;
  name: string;
  flavor: string;
  vcpus: number;
  memory_mb: number;
  local_gb: number;
  hours: number;
  ended_at: string | null;
}

type Links = { rel: string; href: string }[];

export interface ComputeReply extends Measures {
  servers: Server[];
  server: Server & { adminPass?: string };
  adminPass?: string;
  flavors: Flavor[];
  instanceActions: InstanceAction[];
  instanceAction: InstanceAction;
  volumeAttachments: Attachment[];
  interfaceAttachments: Interface[];
  security_groups: SecurityGroupOfServer[];
  services: Daemon[];
  hypervisors: Hypervisor[];
  migrations: Move[];
  keypairs: { keypair: KeyPair }[];
  keypair: KeyPair;
  server_groups: ServerGroup[];
  server_group: ServerGroup;
  aggregates: Aggregate[];
  availabilityZoneInfo: { zoneName: string }[];
  audit_events: AuditEvent[];
  backup_policies: BackupPolicy[];
  backup_policy: BackupPolicy;
  backup_policy_status: PolicyStatus;
  server_backups: Backup[];
  server_backup: Backup;
  limits: { absolute: ComputeLimits };
  quota_set: { instances: Usage; cores: Usage; ram: Usage };
  remote_console: { url: string };
  usage_history: UsageHistory;
  tenant_usages: ProjectUsage[];
  tenant_usages_links?: Links;
  tenant_usage: { server_usages?: ServerUsage[] };
  tenant_usage_links?: Links;
  flavor_access: { tenant_id: string }[];
  output: string;
}
