// Server groups, and aggregates of hosts.
import { call, list } from "./api";
import { called, naming } from "./called";
import type { Aggregate, ServerGroup } from "./compute.types";
import type { Kind } from "./listing";
import { t } from "./messages";
import { link } from "./state";
import { type Choice, command, Name } from "./ui";

const POLICIES = (): Choice[] => [
  { value: "anti-affinity", label: t("On different hosts") },
  { value: "affinity", label: t("On the same host") },
  { value: "soft-anti-affinity", label: t("On different hosts if there are") },
  { value: "soft-affinity", label: t("On the same host if it has room") },
];
const place = (row: Aggregate): `/os-aggregates/${string}` => `/os-aggregates/${row.id}`;
const policyWords = (row: ServerGroup): string =>
  POLICIES().find((item) => item.value === row.policy)?.label ?? row.policy;

export const serverGroups = (): Kind<ServerGroup> => ({
  path: "server-groups",
  services: ["compute"],
  title: t("Server groups"),
  one: t("server group"),
  rule: "os_compute_api:os-server-groups:index",
  load: () => list("compute", "/os-server-groups", "server_groups"),
  show: async (id) => (await naming(call("compute", "GET", `/os-server-groups/${id}`), "servers")).server_group,
  empty: t("There are no server groups. One keeps servers on different hosts, or together."),
  command: "openstack server group list",
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: (row) => row.name,
      cell: (row) => <Name to={["server-groups", row.id]}>{row.name}</Name>,
    },
    { name: "policy", title: t("Policy"), narrow: true, text: policyWords },
    { name: "members", title: t("Servers"), number: true, text: (row) => row.members.length },
  ],
  facts: (row) => [
    [t("Policy"), policyWords(row)],
    [
      t("Servers"),
      row.members.length
        ? row.members.map((id: string) => (
            <div key={id}>
              <a href={link("servers", id)}>{called(id)}</a>
            </div>
          ))
        : t("none"),
    ],
  ],
  create: [
    {
      name: "create",
      label: t("Create a server group"),
      rule: "os_compute_api:os-server-groups:create",
      fields: [
        { name: "name", label: t("Name"), required: true },
        {
          name: "policy",
          label: t("Policy"),
          kind: "select",
          required: true,
          choices: POLICIES(),
          help: t("A group never changes its policy, and servers enter it when they are created."),
        },
      ],
      run: (_, values) =>
        call("compute", "POST", "/os-server-groups", {
          server_group: { name: values.name, policy: values.policy as ServerGroup["policy"] },
        }),
      command: (_, values) => command("openstack server group create --policy", values.policy, values.name || "NAME"),
    },
  ],
  actions: [
    {
      name: "delete",
      label: t("Delete"),
      rule: "os_compute_api:os-server-groups:delete",
      danger: true,
      confirm: t("Its servers stay where they are."),
      run: (row) => call("compute", "DELETE", `/os-server-groups/${row.id}`),
      command: (row) => command("openstack server group delete", row.id),
    },
  ],
});

const hostsOutside = (row: Aggregate) => async (): Promise<Choice[]> =>
  (await list("compute", "/os-services?binary=nova-compute", "services"))
    .filter((service) => !row.hosts.includes(service.host))
    .map((service) => ({ value: service.host, label: service.host }));

export const aggregates = (): Kind<Aggregate> => ({
  path: "aggregates",
  services: ["compute"],
  title: t("Aggregates"),
  one: t("aggregate"),
  rule: "os_compute_api:os-aggregates:index",
  load: () => list("compute", "/os-aggregates", "aggregates"),
  idOf: (row) => String(row.id),
  empty: t("There are no aggregates. One groups hosts: as a zone, or by what they have."),
  command: "openstack aggregate list",
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: (row) => row.name,
      cell: (row) => <Name to={["aggregates", String(row.id)]}>{row.name}</Name>,
    },
    { name: "zone", title: t("Zone"), text: (row) => row.availability_zone ?? "" },
    { name: "hosts", title: t("Hosts"), narrow: true, text: (row) => row.hosts.join(", ") },
  ],
  facts: (row) => [
    [t("Zone"), row.availability_zone],
    [
      t("Hosts"),
      row.hosts.length
        ? row.hosts.map((host: string) => (
            <div key={host}>
              <a href={link("hosts", host)}>{host}</a>
            </div>
          ))
        : t("none"),
    ],
    ...Object.entries(row.metadata).map(([name, value]): [string, string] => [name, String(value)]),
  ],
  create: [
    {
      name: "create",
      label: t("Create an aggregate"),
      rule: "os_compute_api:os-aggregates:create",
      fields: [
        { name: "name", label: t("Name"), required: true },
        { name: "zone", label: t("Zone") },
      ],
      run: (_, values) =>
        call("compute", "POST", "/os-aggregates", {
          aggregate: { name: values.name, availability_zone: values.zone || null },
        }),
      command: (_, values) =>
        command("openstack aggregate create", values.zone && ["--zone", values.zone], values.name || "NAME"),
    },
  ],
  actions: [
    {
      name: "add",
      label: t("Add a host"),
      rule: "os_compute_api:os-aggregates:add_host",
      single: true,
      fieldsOf: (row) => [
        { name: "host", label: t("Host"), kind: "select", required: true, choices: hostsOutside(row) },
      ],
      run: (row, values) => call("compute", "POST", `${place(row)}/action`, { add_host: { host: values.host } }),
      command: (row, values) => command("openstack aggregate add host", row.id, values.host || "HOST"),
    },
    {
      name: "remove",
      label: t("Remove a host"),
      rule: "os_compute_api:os-aggregates:remove_host",
      single: true,
      when: (row) => row.hosts.length > 0,
      fieldsOf: (row) => [
        {
          name: "host",
          label: t("Host"),
          kind: "select",
          required: true,
          choices: async () => row.hosts.map((host: string) => ({ value: host, label: host })),
        },
      ],
      run: (row, values) => call("compute", "POST", `${place(row)}/action`, { remove_host: { host: values.host } }),
      command: (row, values) => command("openstack aggregate remove host", row.id, values.host || "HOST"),
    },
    {
      name: "delete",
      label: t("Delete"),
      rule: "os_compute_api:os-aggregates:delete",
      danger: true,
      when: (row) => row.hosts.length === 0,
      run: (row) => call("compute", "DELETE", place(row)),
      command: (row) => command("openstack aggregate delete", row.id),
    },
  ],
});
