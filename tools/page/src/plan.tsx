// What happens to the servers of a host before anything happens to them: how each one leaves it, and where it has room.
import type { VNode } from "preact";
import { call, list } from "./api";
import type { Daemon, Move, Server } from "./compute.types";
import { t } from "./messages";
import { taskOf } from "./servers";
import { accepts, has, may, useData } from "./state";
import { Table } from "./table";
import { Command, command, Failure, Status, size, Waiting } from "./ui";

export type Way = "live" | "cold" | "rebuild" | "volume" | "stay";
export interface Step {
  server: Server;
  way: Way;
  to: string;
  note: string;
}
export interface Room {
  host: string;
  free: Record<string, number>;
}

const AMOUNTS: Record<string, (server: Server) => number> = {
  VCPU: (server) => server.flavor.vcpus,
  MEMORY_MB: (server) => server.flavor.ram,
  DISK_GB: (server) =>
    (server.image ? server.flavor.disk : 0) +
    (server.flavor.ephemeral ?? 0) +
    Math.ceil((server.flavor.swap || 0) / 1024),
};

export const WAYS = (): Record<Way, string> => ({
  live: t("while it runs"),
  cold: t("with a stop; its owner confirms the move"),
  rebuild: t("with a new disk of its image"),
  volume: t("with its volume"),
  stay: t("stays"),
});

/** How a server leaves a host that works, and why it does not. */
export function leaves(server: Server): [Way, string] {
  if (taskOf(server)) return ["stay", t("An action is under way")];
  if (accepts("live-migration", server)) return ["live", ""];
  if (accepts("migrate", server)) return ["cold", ""];
  return ["stay", t("Its state allows no move.")];
}

/** How a server of a lost host comes back. */
export function returns(server: Server): [Way, string] {
  if (!accepts("evacuate", server)) return ["stay", t("Its state allows no move.")];
  return server.image
    ? ["rebuild", t("What was on its disk is lost, unless hosts share their disks.")]
    : ["volume", ""];
}

/** What is free on each other host that is up and enabled, to those who may ask. */
async function rooms(but: string): Promise<Room[] | null> {
  if (!has("placement") || !may("placement:allocation_candidates:list")) return null;
  const [services, hypervisors, found] = await Promise.all([
    list("compute", "/os-services?binary=nova-compute", "services"),
    list("compute", "/os-hypervisors/detail", "hypervisors"),
    call("placement", "GET", "/allocation_candidates?resources=VCPU:1,MEMORY_MB:1&limit=1000"),
  ]);
  const usable = new Set(
    services.filter((row) => row.state === "up" && row.status === "enabled" && row.host !== but).map((row) => row.host),
  );
  const free = (resources: Record<string, { capacity: number; used: number }>) =>
    Object.fromEntries(Object.entries(resources).map(([name, value]) => [name, value.capacity - value.used]));
  return hypervisors.flatMap((row) => {
    const summary = found.provider_summaries[row.id];
    return usable.has(row.service.host) && summary ? [{ host: row.service.host, free: free(summary.resources) }] : [];
  });
}

/** The largest server goes first, to the host with most memory left. Each server sees the earlier ones as moved. */
export function planned(servers: Server[], how: (server: Server) => [Way, string], room: Room[] | null): Step[] {
  return [...servers]
    .sort((left, right) => right.flavor.ram - left.flavor.ram)
    .map((server) => {
      const [way, note] = how(server);
      if (way === "stay" || room === null) return { server, way, to: "", note };
      const needs = Object.entries(AMOUNTS)
        .map(([name, of]): [string, number] => [name, of(server)])
        .filter(([, amount]) => amount > 0);
      const fitting = room.filter((item) => needs.every(([name, amount]) => (item.free[name] ?? 0) >= amount));
      fitting.sort((left, right) => right.free.MEMORY_MB! - left.free.MEMORY_MB!);
      const best = fitting[0];
      if (!best) return { server, way, to: "", note: t("No host has room for it now.") };
      for (const [name, amount] of needs) best.free[name]! -= amount;
      return { server, way, to: best.host, note };
    });
}

const serversOf = (host: string): Promise<Server[]> =>
  list("compute", `/servers/detail?all_tenants=1&limit=1000&host=${encodeURIComponent(host)}`, "servers");

/** The reason of a host in maintenance, as nova-lite-manage host maintenance writes and reads it. */
const MAINTENANCE = /^nova-lite-manage host maintenance(?: --end)?, after migration (\d+)(?:: .*)?$/;
const MOVED = ["completed", "confirmed"];
export const isMaintained = (row: Daemon): boolean => MAINTENANCE.test(row.disabled_reason ?? "");

export async function maintenanceReason(row: Daemon): Promise<string> {
  if (isMaintained(row) && row.status === "disabled") return row.disabled_reason ?? ""; // if it is enabled, others have moved its servers
  const [newest] = await list("compute", "/os-migrations?limit=1", "migrations");
  return `nova-lite-manage host maintenance, after migration ${newest?.id ?? 0}`;
}

/** Servers whose last move, in the maintenance, was from this host. An evacuation is none, as for the command. */
export async function returnSteps(host: string): Promise<Step[]> {
  const [service] = await list(
    "compute",
    `/os-services?binary=nova-compute&host=${encodeURIComponent(host)}`,
    "services",
  );
  const after = Number(MAINTENANCE.exec(service?.disabled_reason ?? "")?.[1] ?? Infinity);
  const [moves, servers] = await Promise.all([
    list("compute", "/os-migrations?limit=1000", "migrations"),
    list("compute", "/servers/detail?all_tenants=1&limit=1000", "servers"),
  ]);
  const last = new Map<string, Move>();
  for (const move of moves
    .filter((row) => row.id > after && MOVED.includes(row.status) && row.migration_type !== "evacuation")
    .sort((left, right) => left.id - right.id))
    last.set(move.instance_uuid, move);
  return servers
    .filter((server) => last.get(server.id)?.source_compute === host)
    .map((server) => {
      const [way, note] = leaves(server);
      return { server, way, to: way === "stay" ? "" : host, note };
    });
}

export const drainSteps = async (host: string): Promise<Step[]> =>
  planned(await serversOf(host), leaves, await rooms(host));
export const evacuateSteps = async (host: string): Promise<Step[]> =>
  planned(await serversOf(host), returns, await rooms(host));

export function Plan({ host, steps }: { host: string; steps: (host: string) => Promise<Step[]> }): VNode {
  const { data, error, reload } = useData(() => steps(host), ["plan", host]);
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return (
    <div class="plan">
      <p>
        <b>{t("Plan")}</b>:{" "}
        {data.length
          ? t("This would happen now. The scheduler chooses again when each move begins.")
          : t("No server moves.")}
      </p>
      {data.length > 0 && (
        <Table
          scope="plan-"
          label={t("Plan")}
          rows={data}
          idOf={(row) => row.server.id}
          nameOf={(row) => row.server.name}
          empty={null}
          columns={[
            { name: "server", title: t("Server"), narrow: true, text: (row) => row.server.name },
            {
              name: "size",
              title: t("Memory"),
              number: true,
              text: (row) => row.server.flavor.ram,
              cell: (row) => size(row.server.flavor.ram),
            },
            {
              name: "way",
              title: t("How"),
              narrow: true,
              text: (row) => WAYS()[row.way],
              cell: (row) => (
                <>
                  {WAYS()[row.way]}
                  {row.note && <small class="reason">{row.note}</small>}
                </>
              ),
            },
            { name: "to", title: t("To host"), narrow: true, text: (row) => row.to },
          ]}
        />
      )}
    </div>
  );
}

/** What a server on a host that is to be removed needs first. */
function needed(server: Server, isLost: boolean): string {
  if (taskOf(server)) return t("An action is under way");
  if (server.status === "VERIFY_RESIZE") return t("Confirm or revert its resize.");
  if (server.status === "SOFT_DELETED") return t("Delete or restore it.");
  if (isLost)
    return accepts("evacuate", server) ? t("Evacuate it.") : t("Delete it, or set its state to error and evacuate it.");
  return leaves(server)[0] === "stay"
    ? t("Delete it, or set its state to active and move it.")
    : t("Drain the host, or move it.");
}

/** What is still on a host that is to be removed, and what comes before the removal. */
export function Remains({ host: row }: { host: Daemon }): VNode {
  const { data, error, reload } = useData(() => serversOf(row.host), ["remains", row.host]);
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  const isLost: boolean = row.forced_down;
  return (
    <div class="plan">
      <p>
        <b>{t("Plan")}</b>:{" "}
        {data.length
          ? `${t("Servers that are still on this host")}: ${data.length}. ${t("The API refuses as long as they are there.")}`
          : t("No servers are on this host.")}
      </p>
      {data.length > 0 && (
        <Table
          scope="left-"
          label={t("Servers that are still on this host")}
          rows={data}
          idOf={(server) => server.id}
          nameOf={(server) => server.name}
          empty={null}
          columns={[
            { name: "server", title: t("Server"), narrow: true, text: (server) => server.name },
            {
              name: "status",
              title: t("Status"),
              narrow: true,
              text: (server) => server.status,
              cell: (server) => <Status value={server.status} />,
            },
            { name: "needed", title: t("To do first"), narrow: true, text: (server) => needed(server, isLost) },
          ]}
        />
      )}
      {!isLost && row.state === "down" && (
        <p>
          {t(
            "The host sends no heartbeats. If it is lost for good, make sure that it is off, declare it down, and open this dialog again.",
          )}
        </p>
      )}
      {isLost && (
        <>
          <p>
            {t(
              "If the host is lost for good, retire it first, on a controller. That ends what waits for the host and releases what is reserved on it; the APIs have no request for it.",
            )}{" "}
            {data.length > 0 &&
              t(
                "With --with-instances its servers are lost: in error and on no host, except those whose disks or images are elsewhere. Without it, the command only lists them.",
              )}
          </p>
          <Command
            label={t("On a controller")}
            text={command("nova-lite-manage host retire", row.host, data.length > 0 && "--with-instances")}
          />
        </>
      )}
    </div>
  );
}
