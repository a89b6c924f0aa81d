// Load balancers: one form makes one with its listener, pool, members and health monitor.
import type { VNode } from "preact";
import { call, list } from "./api";
import type { Balancer, Listener, Member, Monitor, Pool } from "./balancer.types";
import { called, naming } from "./called";
import { freeAddresses, ownSubnets, serverAddresses } from "./choices";
import type { Kind } from "./listing";
import { t } from "./messages";
import { link, useData } from "./state";
import { Table } from "./table";
import {
  type Action,
  ActionButtons,
  command,
  Facts,
  Failure,
  type Field,
  Name,
  Status,
  Time,
  type Values,
  Waiting,
} from "./ui";

const PATH = "/lbaas/loadbalancers";
/** Seconds between two checks of a member, until a check has failed; and checks until it counts as up or down. */
const MONITOR = { delay: 5, timeout: 3, max_retries: 3 };

/** A load balancer with the state that lists show. */
type Row = Balancer & { status: string };
const rowOf = (found: Balancer): Row => ({ ...found, status: found.provisioning_status });
const isReady = (row: Balancer): boolean => !row.provisioning_status.startsWith("PENDING");
const isPending = (row: { provisioning_status: string }): boolean => row.provisioning_status.startsWith("PENDING");
const plain = (...values: string[]) => values.map((value) => ({ value, label: value }));

const memberFields = (required: boolean): Field[] => [
  {
    name: "servers",
    label: t("Members"),
    kind: "many",
    choices: async () => (await serverAddresses("IPv4")).map((item) => ({ value: item.address, label: item.label })),
    help: t("Their security groups have to let in the load balancer."),
  },
  {
    name: "internal",
    label: t("Port of the members"),
    kind: "number",
    min: 1,
    max: 65535,
    initial: "80",
    required,
  },
];

const FIELDS = (): Field[] => [
  { name: "name", label: t("Name"), required: true },
  {
    name: "subnet",
    label: t("Network"),
    kind: "select",
    required: true,
    choices: async () => (await ownSubnets()).filter((choice) => !choice.label.includes(":")),
  },
  {
    name: "protocol",
    label: t("Protocol"),
    kind: "select",
    required: true,
    choices: plain("HTTP", "TCP", "HTTPS"),
    help: t("HTTPS passes TLS through to the members."),
  },
  { name: "port", label: t("Port"), kind: "number", required: true, min: 1, max: 65535, initial: "80" },
  ...memberFields(true),
  {
    name: "algorithm",
    label: t("Next member"),
    kind: "select",
    required: true,
    choices: [
      { value: "ROUND_ROBIN", label: t("in turn") },
      { value: "LEAST_CONNECTIONS", label: t("with the fewest connections") },
      { value: "SOURCE_IP", label: t("the same for each client address") },
    ],
  },
  {
    name: "monitor",
    label: t("Health monitor"),
    kind: "select",
    choices: [
      { value: "TCP", label: t("TCP: the port answers") },
      { value: "HTTP", label: t("HTTP: a page answers") },
      { value: "", label: t("none") },
    ],
    first: true,
  },
  {
    name: "path",
    label: t("Path of the page"),
    initial: "/",
    required: true,
    pattern: "/.*",
    when: (values) => values.monitor === "HTTP",
  },
];

function balancerOf(values: Values): object {
  const http = values.monitor === "HTTP" ? { url_path: values.path } : {};
  const pool = {
    name: values.name,
    protocol: values.protocol,
    lb_algorithm: values.algorithm,
    members: values.servers.map((address) => ({ address, protocol_port: Number(values.internal) })),
    ...(values.monitor ? { healthmonitor: { type: values.monitor, ...MONITOR, ...http } } : {}),
  };
  const { name, protocol } = values;
  return {
    name,
    vip_subnet_id: values.subnet,
    listeners: [{ name, protocol, protocol_port: Number(values.port), default_pool: pool }],
  };
}

const memberCommand = (pool: string, address: string, port: string): string =>
  command(
    "openstack loadbalancer member create",
    ["--address", address],
    ["--protocol-port", port || "PORT"],
    "--wait",
    pool,
  );

function createCommands(values: Values): string {
  const name = values.name || "NAME";
  return [
    command(
      "openstack loadbalancer create",
      ["--name", name],
      ["--vip-subnet-id", values.subnet || "SUBNET"],
      "--wait",
    ),
    command(
      "openstack loadbalancer listener create",
      ["--name", name, "--protocol", values.protocol || "HTTP", "--protocol-port", values.port || "PORT"],
      "--wait",
      name,
    ),
    command(
      "openstack loadbalancer pool create",
      ["--name", name, "--protocol", values.protocol || "HTTP", "--lb-algorithm", values.algorithm || "ROUND_ROBIN"],
      ["--listener", name, "--wait"],
    ),
    values.monitor &&
      command(
        "openstack loadbalancer healthmonitor create",
        ["--type", values.monitor, "--delay", MONITOR.delay, "--timeout", MONITOR.timeout],
        ["--max-retries", MONITOR.max_retries],
        values.monitor === "HTTP" && ["--url-path", values.path || "/"],
        "--wait",
        name,
      ),
    ...values.servers.map((address) => memberCommand(name, address, values.internal)),
  ]
    .filter(Boolean)
    .join("\n");
}

export const balancers = (): Kind<Row> => ({
  path: "load-balancers",
  title: t("Load balancers"),
  one: t("load balancer"),
  rule: "os_load-balancer_api:loadbalancer:get_all",
  load: async () => (await naming(list("load_balancer", PATH, "loadbalancers"), "networks")).map(rowOf),
  show: async (id) => rowOf((await naming(call("load_balancer", "GET", `${PATH}/${id}`), "networks")).loadbalancer),
  nameOf: (row) => row.name || row.id.slice(0, 8),
  empty: t("There are no load balancers. One spreads connections over several servers."),
  command: "openstack loadbalancer list",
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: (row) => row.name || row.id.slice(0, 8),
      cell: (row) => <Name to={["load-balancers", row.id]}>{row.name || row.id.slice(0, 8)}</Name>,
    },
    {
      name: "status",
      title: t("Status"),
      narrow: true,
      text: (row) => row.status,
      cell: (row) => <Status value={row.status} busy={isPending(row)} />,
    },
    {
      name: "traffic",
      title: t("Traffic"),
      narrow: true,
      text: (row) => row.operating_status,
      cell: (row) => <Status value={row.operating_status} />,
    },
    { name: "address", title: t("Address"), text: (row) => row.vip_address },
    {
      name: "network",
      title: t("Network"),
      text: (row) => called(row.vip_network_id),
      cell: (row) => <a href={link("networks", row.vip_network_id)}>{called(row.vip_network_id)}</a>,
    },
    {
      name: "created",
      title: t("Created"),
      text: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
  ],
  facts: (row) => [
    [t("Traffic"), <Status value={row.operating_status} />],
    [t("Address"), row.vip_address],
    [t("Network"), <a href={link("networks", row.vip_network_id)}>{called(row.vip_network_id)}</a>],
    [t("Created"), <Time at={row.created_at} />],
    [t("Description"), row.description],
  ],
  more: (row, reload) => <Parts row={row} reload={reload} />,
  create: [
    {
      name: "create",
      label: t("Create a load balancer"),
      rule: "os_load-balancer_api:loadbalancer:post",
      fields: FIELDS(),
      run: (_, values) => call("load_balancer", "POST", PATH, { loadbalancer: balancerOf(values) }),
      command: (_, values) => createCommands(values),
    },
  ],
  actions: [
    {
      name: "floating",
      label: t("Associate a floating address"),
      rule: "create_floatingip",
      single: true,
      fields: [
        {
          name: "address",
          label: t("Floating address"),
          kind: "select",
          required: true,
          choices: async () => freeAddresses(await list("network", "/floatingips", "floatingips")),
        },
      ],
      run: (row, values) =>
        values.address.startsWith("new:")
          ? call("network", "POST", "/floatingips", {
              floatingip: { floating_network_id: values.address.slice(4), port_id: row.vip_port_id },
            })
          : call("network", "PUT", `/floatingips/${values.address}`, { floatingip: { port_id: row.vip_port_id } }),
      command: (row, values) =>
        values.address.startsWith("new:")
          ? command("openstack floating ip create --port", row.vip_port_id, values.address.slice(4))
          : command("openstack floating ip set --port", row.vip_port_id, values.address || "ADDRESS"),
    },
    {
      name: "rename",
      label: t("Change"),
      rule: "os_load-balancer_api:loadbalancer:put",
      single: true,
      when: isReady,
      fieldsOf: (row) => [
        { name: "name", label: t("Name"), required: true, initial: row.name },
        { name: "description", label: t("Description"), initial: row.description },
      ],
      run: (row, values) =>
        call("load_balancer", "PUT", `${PATH}/${row.id}`, {
          loadbalancer: { name: values.name, description: values.description },
        }),
      command: (row, values) =>
        command(
          "openstack loadbalancer set",
          ["--name", values.name],
          values.description && ["--description", values.description],
          row.id,
        ),
    },
    {
      name: "failover",
      label: t("Fail over"),
      rule: "os_load-balancer_api:loadbalancer:put_failover",
      when: isReady,
      confirm: t("Its other host takes the address. Open connections end."),
      run: (row) => call("load_balancer", "PUT", `${PATH}/${row.id}/failover`),
      command: (row) => command("openstack loadbalancer failover", row.id),
    },
    {
      name: "delete",
      label: t("Delete"),
      rule: "os_load-balancer_api:loadbalancer:delete",
      danger: true,
      when: isReady,
      confirm: t("Its listeners, pools and members go with it. The servers stay."),
      run: (row) => call("load_balancer", "DELETE", `${PATH}/${row.id}?cascade=true`),
      command: (row) => command("openstack loadbalancer delete --cascade", row.id),
    },
  ],
});

interface Served extends Member {
  pool: Pool;
}

interface Found {
  listeners: Listener[];
  pools: Pool[];
  members: Served[];
  monitors: Monitor[];
  connections: number;
}

async function partsOf(id: string): Promise<Found> {
  const [listeners, pools, monitors, { stats }] = await Promise.all([
    list("load_balancer", `/lbaas/listeners?loadbalancer_id=${id}`, "listeners"),
    list("load_balancer", `/lbaas/pools?loadbalancer_id=${id}`, "pools"),
    list("load_balancer", `/lbaas/healthmonitors?loadbalancer_id=${id}`, "healthmonitors"),
    call("load_balancer", "GET", `${PATH}/${id}/stats`),
  ]);
  const members = await Promise.all(
    pools.map(async (pool) =>
      (await list("load_balancer", `/lbaas/pools/${pool.id}/members`, "members")).map((item) => ({ ...item, pool })),
    ),
  );
  return { listeners, pools, members: members.flat(), monitors, connections: stats.active_connections };
}

const poolName = (pool: Pool | undefined): string => (pool ? pool.name || pool.id.slice(0, 8) : "");

function Parts({ row, reload }: { row: Row; reload: () => void }): VNode {
  const { data, error, reload: again } = useData(() => partsOf(row.id), ["balancer", row.id], 5);
  if (!data) return error ? <Failure error={error} retry={again} /> : <Waiting />;
  const done = () => {
    again();
    reload();
  };
  const monitorOf = (pool: Pool): string => {
    const found = data.monitors.find((item) => item.id === pool.healthmonitor_id);
    return found ? `${found.type}${found.url_path ? ` ${found.url_path}` : ""}, ${found.delay} s` : t("none");
  };
  const isFree = () => isReady(row);
  const add: Action<Row> = {
    name: "members",
    label: t("Add members"),
    rule: "os_load-balancer_api:member:post",
    when: (item) => isReady(item) && data.pools.length > 0,
    fields: [
      {
        name: "pool",
        label: t("Pool"),
        kind: "select",
        required: true,
        choices: data.pools.map((pool) => ({ value: pool.id, label: poolName(pool) })),
      },
      ...memberFields(true),
    ],
    // One request adds them all, as a load balancer takes no second change before the first one is done.
    run: (_, values) =>
      call("load_balancer", "PUT", `/lbaas/pools/${values.pool}/members?additive_only=true`, {
        members: values.servers.map((address) => ({ address, protocol_port: Number(values.internal) })),
      }),
    command: (_, values) =>
      (values.servers.length ? values.servers : ["ADDRESS"])
        .map((address) => memberCommand(values.pool || "POOL", address, values.internal))
        .join("\n"),
  };
  const remove: Action<Served> = {
    name: "remove",
    label: t("Remove"),
    rule: "os_load-balancer_api:member:delete",
    danger: true,
    single: true,
    when: isFree,
    run: (item) => call("load_balancer", "DELETE", `/lbaas/pools/${item.pool.id}/members/${item.id}`),
    command: (item) => command("openstack loadbalancer member delete", item.pool.id, item.id),
  };
  const close: Action<Listener> = {
    name: "close",
    label: t("Delete"),
    rule: "os_load-balancer_api:listener:delete",
    danger: true,
    single: true,
    when: isFree,
    run: (item) => call("load_balancer", "DELETE", `/lbaas/listeners/${item.id}`),
    command: (item) => command("openstack loadbalancer listener delete", item.id),
  };
  return (
    <>
      <Facts items={[[t("Open connections"), data.connections]]} />
      <ActionButtons actions={[add]} row={row} nameOf={(item) => item.name} done={done} />
      <h2>{t("Listeners")}</h2>
      <Table
        scope="listener-"
        label={t("Listeners")}
        rows={data.listeners}
        idOf={(item) => item.id}
        nameOf={(item) => item.name || `${item.protocol} ${item.protocol_port}`}
        actions={[close]}
        done={done}
        empty={<p>{t("It listens on no port.")}</p>}
        columns={[
          { name: "name", title: t("Name"), text: (item) => item.name },
          {
            name: "port",
            title: t("Port"),
            narrow: true,
            text: (item) => `${item.protocol} ${item.protocol_port}`,
          },
          {
            name: "pool",
            title: t("Pool"),
            text: (item) => poolName(data.pools.find((pool) => pool.id === item.default_pool_id)),
          },
          {
            name: "traffic",
            title: t("Traffic"),
            narrow: true,
            text: (item) => item.operating_status,
            cell: (item) => <Status value={item.operating_status} />,
          },
        ]}
      />
      <h2>{t("Members")}</h2>
      <Table
        scope="member-"
        label={t("Members")}
        rows={data.members}
        idOf={(item) => item.id}
        nameOf={(item) => `${item.address}:${item.protocol_port}`}
        actions={[remove]}
        done={done}
        empty={<p>{t("There are no members: nobody answers.")}</p>}
        columns={[
          {
            name: "address",
            title: t("Address"),
            narrow: true,
            text: (item) => `${item.address}:${item.protocol_port}`,
          },
          {
            name: "traffic",
            title: t("Traffic"),
            narrow: true,
            text: (item) => item.operating_status,
            cell: (item) => <Status value={item.operating_status} />,
          },
          { name: "weight", title: t("Weight"), number: true, text: (item) => item.weight },
          { name: "pool", title: t("Pool"), text: (item) => poolName(item.pool) },
          { name: "monitor", title: t("Health monitor"), text: (item) => monitorOf(item.pool) },
        ]}
      />
    </>
  );
}
