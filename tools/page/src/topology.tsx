// A drawing of who is connected with whom: the outside, routers, networks, servers.
import type { VNode } from "preact";
import { list } from "./api";
import { called, naming } from "./called";
import { t } from "./messages";
import type { Network } from "./network.types";
import { link, useData } from "./state";

const ROW = 46,
  WIDTH = 184,
  GAP = 48,
  SERVERS = 8;

type Line = [number, number, number, number];

/** A line from one point to another that leaves and arrives level. */
function curve([x1, y1, x2, y2]: Line): string {
  const middle = (x1 + x2) / 2;
  return `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}

export function Topology(): VNode | null {
  const { data } = useData(
    async () => {
      const [networks, routers, ports] = await Promise.all([
        list("network", "/networks", "networks"),
        list("network", "/routers", "routers").catch(() => []),
        naming(list("network", "/ports?limit=1000", "ports"), "servers"),
      ]);
      return { networks, routers, ports };
    },
    ["topology"],
    10,
    ["network", "compute"],
  );
  if (!data) return null;
  const outside = data.networks.filter((row) => row["router:external"]);
  const inside = data.networks.filter((row) => !row["router:external"]);
  const serversOf = (network: Network) => [
    ...new Set(
      data.ports
        .filter((port) => port.network_id === network.id && port.device_owner.startsWith("compute:"))
        .map((port) => port.device_id),
    ),
  ];
  const columns: { x: number; boxes: Map<string, number> }[] = [0, 1, 2, 3].map((at) => ({
    x: at * (WIDTH + GAP),
    boxes: new Map(),
  }));
  for (const [at, row] of outside.entries()) columns[0]!.boxes.set(row.id, at * ROW);
  for (const [at, row] of data.routers.entries()) columns[1]!.boxes.set(row.id, at * ROW);
  let y = 0;
  const groups: { id: string; label: string; network: string; y: number; href: string }[] = [];
  for (const network of inside) {
    const servers = serversOf(network);
    columns[2]!.boxes.set(network.id, y);
    for (const [at, id] of servers.slice(0, SERVERS).entries())
      groups.push({
        id,
        label: called(id),
        network: network.id,
        y: y + at * ROW,
        href: link("servers", id),
      });
    if (servers.length > SERVERS)
      groups.push({
        id: `${network.id}+`,
        label: `+ ${servers.length - SERVERS}`,
        network: network.id,
        y: y + SERVERS * ROW,
        href: link("servers"),
      });
    y += Math.max(1, Math.min(SERVERS + 1, servers.length)) * ROW;
  }
  const height = Math.max(y, outside.length * ROW, data.routers.length * ROW, ROW);
  const lines: Line[] = [];
  const between = (left: number, a: number | undefined, right: number, b: number | undefined) =>
    a !== undefined && b !== undefined && lines.push([columns[left]!.x + WIDTH, a + 16, columns[right]!.x, b + 16]);
  for (const router of data.routers) {
    const at = columns[1]!.boxes.get(router.id);
    between(0, columns[0]!.boxes.get(router.external_gateway_info?.network_id ?? ""), 1, at);
    for (const port of data.ports)
      if (port.device_id === router.id) between(1, at, 2, columns[2]!.boxes.get(port.network_id));
  }
  for (const group of groups) between(2, columns[2]!.boxes.get(group.network), 3, group.y);
  const box = (column: number, id: string, name: string, href: string, at: number, kind: string) => (
    <a key={`${column}${id}`} href={href} class={kind}>
      <rect x={columns[column]!.x} y={at} width={WIDTH} height={32} rx={6} />
      <text x={columns[column]!.x + 12} y={at + 21}>
        {name.length > 21 ? `${name.slice(0, 20)}…` : name}
      </text>
    </a>
  );
  return (
    <details class="topology" open={height < 600}>
      <summary>{t("Drawing")}</summary>
      <div class="scroll" tabIndex={0} role="region" aria-label={t("Drawing of the networks")}>
        {/* biome-ignore lint/a11y/noSvgWithoutTitle: the region has the name, and each box its own. */}
        <svg
          viewBox={`-2 -26 ${4 * WIDTH + 3 * GAP + 4} ${height + 30}`}
          width={4 * WIDTH + 3 * GAP}
          height={height + 30}
        >
          {[t("Outside"), t("Routers"), t("Networks"), t("Servers")].map((name, at) => (
            <text key={name} class="heading" x={columns[at]!.x} y={-10}>
              {name}
            </text>
          ))}
          {lines.map((line) => (
            <path key={line.join(" ")} d={curve(line)} />
          ))}
          {outside.map((row) =>
            box(0, row.id, row.name, link("networks", row.id), columns[0]!.boxes.get(row.id)!, "outside"),
          )}
          {data.routers.map((row) =>
            box(1, row.id, row.name, link("routers", row.id), columns[1]!.boxes.get(row.id)!, "router"),
          )}
          {inside.map((row) =>
            box(2, row.id, row.name, link("networks", row.id), columns[2]!.boxes.get(row.id)!, "network"),
          )}
          {groups.map((row) => box(3, row.network + row.id, row.label, row.href, row.y, "server"))}
        </svg>
      </div>
    </details>
  );
}
