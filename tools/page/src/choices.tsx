import { list } from "./api";
import { called, namesOf } from "./called";
import { t } from "./messages";
import type { FloatingIp, Port } from "./network.types";
import { shared } from "./state";
import type { Choice } from "./ui";

export { Secret } from "./servers";

const servers = async (): Promise<Choice[]> =>
  (await list("compute", "/servers/detail?limit=1000", "servers"))
    .filter((server) => !server.status.includes("DELETED"))
    .map((server) => ({ value: server.id, label: server.name }));

const keys = async (): Promise<Choice[]> => [
  { value: "", label: t("None: nobody can log in with SSH") },
  ...(await list("compute", "/os-keypairs", "keypairs")).map(({ keypair: { name } }) => ({ value: name, label: name })),
];

export const names = { keys, servers };

export const freeServers = async (): Promise<Choice[]> =>
  (await list("compute", "/servers/detail?limit=1000", "servers"))
    .filter((server) => ["ACTIVE", "SHUTOFF", "PAUSED"].includes(server.status))
    .map((server) => ({ value: server.id, label: server.name }));

export interface ServerAddress {
  port: string;
  address: string;
  label: string;
}

/** Those ports that are servers', once the servers' names are there. */
export async function ofServers(found: Promise<Port[]>): Promise<Port[]> {
  const ports = (await found).filter((port) => port.device_owner.startsWith("compute:"));
  await namesOf(
    "servers",
    ports.map((port) => port.device_id),
  );
  return ports;
}

/** The addresses of the project's servers, each with its port. `family`: only those of one. */
export async function serverAddresses(family?: "IPv4"): Promise<ServerAddress[]> {
  const project = shared.session!.project!.id;
  const ports = await ofServers(list("network", `/ports?project_id=${project}`, "ports"));
  return ports
    .flatMap((port) =>
      port.fixed_ips.map(({ ip_address: address }) => ({
        port: port.id,
        address,
        label: `${address} (${called(port.device_id)})`,
      })),
    )
    .filter(({ address }) => !family || !address.includes(":"));
}

/** The address ranges of networks inside of the cloud. */
export async function ownSubnets(): Promise<Choice[]> {
  const [subnets, found] = await Promise.all([
    list("network", "/subnets", "subnets"),
    list("network", "/networks", "networks"),
  ]);
  const inside = new Map(
    found.filter((row) => !row["router:external"]).map((row) => [row.id, row.name || row.id.slice(0, 8)]),
  );
  return subnets
    .filter((row) => inside.has(row.network_id))
    .map((row) => ({ value: row.id, label: `${inside.get(row.network_id)} – ${row.cidr}` }));
}

/** Free floating addresses, and for each external network a new one. */
export async function freeAddresses(floating: FloatingIp[]): Promise<Choice[]> {
  const pools = await list("network", "/networks?router:external=true", "networks");
  return [
    ...floating.filter((ip) => !ip.port_id).map((ip) => ({ value: ip.id, label: ip.floating_ip_address })),
    ...pools.map((pool) => ({ value: `new:${pool.id}`, label: `${t("a new one of")} ${pool.name}` })),
  ];
}
