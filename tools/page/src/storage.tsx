// Types of volumes, and what moves a volume: another name, another type, another project.
import type { VNode } from "preact";
import { all, call, list } from "./api";
import { called, naming } from "./called";
import type { Kind } from "./listing";
import { t } from "./messages";
import { may, useData } from "./state";
import { Table } from "./table";
import { type Action, type Choice, command, Failure, type Field, Name, resulting, Waiting } from "./ui";
import type { Transfer, Volume, VolumeType } from "./volume.types";

export const typeChoices = async (): Promise<Choice[]> =>
  (await list("volume", "/types", "volume_types")).map((row) => ({ value: row.id, label: row.name }));
const projectChoices = async (): Promise<Choice[]> =>
  (await list("identity", "/projects", "projects")).map((row) => ({ value: row.id, label: row.name }));

const MANAGE = "volume_extension:types_manage";

export const volumeTypes = (): Kind<VolumeType> => ({
  path: "volume-types",
  services: ["volume"],
  title: t("Volume types"),
  one: t("volume type"),
  rule: "volume:get_all_types",
  load: () => list("volume", "/types", "volume_types"),
  show: async (id) => (await call("volume", "GET", `/types/${id}`)).volume_type,
  empty: t("There are no volume types."),
  command: "openstack volume type list",
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: (row) => row.name,
      cell: (row) => <Name to={["volume-types", row.id]}>{row.name}</Name>,
    },
    {
      name: "for",
      title: t("For"),
      narrow: true,
      text: (row) => (row.is_public ? t("all projects") : t("some projects")),
    },
    { name: "description", title: t("Description"), text: (row) => row.description ?? "" },
  ],
  facts: (row) => [
    [t("For"), row.is_public ? t("all projects") : t("some projects")],
    [t("Description"), row.description],
  ],
  more: (row, reload) => (
    <>
      <Properties type={row} reload={reload} />
      {!row.is_public && may("volume_extension:volume_type_access:get_all_for_type") && <Projects type={row} />}
    </>
  ),
  create: [
    {
      name: "create",
      label: t("Create a volume type"),
      rule: MANAGE,
      fields: [
        { name: "name", label: t("Name"), required: true },
        { name: "description", label: t("Description") },
        { name: "public", label: t("For all projects"), kind: "checkbox", initial: true },
      ],
      run: (_, values) =>
        call("volume", "POST", "/types", {
          volume_type: {
            name: values.name,
            description: values.description || null,
            "os-volume-type-access:is_public": values.public,
          },
        }),
      command: (_, values) =>
        command(
          "openstack volume type create",
          !values.public && "--private",
          values.description && ["--description", values.description],
          values.name || "NAME",
        ),
    },
  ],
  actions: [
    {
      name: "change",
      label: t("Change"),
      rule: MANAGE,
      single: true,
      fieldsOf: (row) => [
        { name: "name", label: t("Name"), required: true, initial: row.name },
        { name: "description", label: t("Description"), initial: row.description ?? "" },
      ],
      run: (row, values) =>
        call("volume", "PUT", `/types/${row.id}`, {
          volume_type: { name: values.name, description: values.description },
        }),
      command: (row, values) =>
        command(
          "openstack volume type set",
          ["--name", values.name],
          values.description && ["--description", values.description],
          row.id,
        ),
    },
    {
      name: "property",
      label: t("Set a property"),
      rule: MANAGE,
      single: true,
      fields: PROPERTY(),
      run: (row, values) =>
        call("volume", "POST", `/types/${row.id}/extra_specs`, { extra_specs: { [values.key]: values.value } }),
      command: (row, values) =>
        command("openstack volume type set", ["--property", `${values.key || "KEY"}=${values.value}`], row.id),
    },
    {
      name: "access",
      label: t("Let a project use it"),
      rule: MANAGE,
      single: true,
      when: (row) => !row.is_public,
      fields: [{ name: "project", label: t("Project"), kind: "select", required: true, choices: projectChoices }],
      run: (row, values) =>
        call("volume", "POST", `/types/${row.id}/action`, { addProjectAccess: { project: values.project } }),
      command: (row, values) => command("openstack volume type set --project", values.project || "PROJECT", row.id),
    },
    {
      name: "delete",
      label: t("Delete"),
      rule: MANAGE,
      danger: true,
      confirm: t("This works once no volume has the type any more."),
      run: (row) => call("volume", "DELETE", `/types/${row.id}`),
      command: (row) => command("openstack volume type delete", row.id),
    },
  ],
});

/** Fields of a name with its value. */
export const PROPERTY = (): Field[] => [
  { name: "key", label: t("Name"), required: true },
  { name: "value", label: t("Value"), required: true },
];

function Properties({ type, reload }: { type: VolumeType; reload: () => void }): VNode {
  const remove: Action<Pair> = {
    name: "remove",
    label: t("Remove"),
    rule: MANAGE,
    danger: true,
    run: ({ key }) => call("volume", "DELETE", `/types/${type.id}/extra_specs/${encodeURIComponent(key)}`),
    command: ({ key }) => command("openstack volume type unset", ["--property", key], type.id),
  };
  return <Pairs label={t("Properties")} pairs={pairsOf(type.extra_specs)} remove={remove} done={reload} />;
}

/** A name with its value. */
export interface Pair {
  key: string;
  value: string;
}

export const pairsOf = (values: Record<string, string> = {}): Pair[] =>
  Object.entries(values).map(([key, value]) => ({ key, value: String(value) }));

/** Names with their values. */
export function Pairs({
  label,
  pairs,
  remove,
  done,
}: {
  label: string;
  pairs: Pair[];
  remove: Action<Pair>;
  done: () => void;
}): VNode {
  return (
    <>
      <h2>{label}</h2>
      <Table
        scope="pair-"
        label={label}
        rows={pairs}
        idOf={(row) => row.key}
        nameOf={(row) => row.key}
        actions={[remove]}
        done={done}
        empty={<p>{t("There are none.")}</p>}
        columns={[
          {
            name: "key",
            title: t("Name"),
            narrow: true,
            text: (row) => row.key,
            cell: (row) => <code>{row.key}</code>,
          },
          { name: "value", title: t("Value"), narrow: true, text: (row) => row.value },
        ]}
      />
    </>
  );
}

function Projects({ type }: { type: VolumeType }): VNode {
  const { data, error, reload } = useData(
    () => naming(list("volume", `/types/${type.id}/os-volume-type-access`, "volume_type_access"), "projects"),
    ["access", type.id],
    10,
    ["volume"],
  );
  const remove: Action<{ id: string }> = {
    name: "remove",
    label: t("Remove"),
    rule: MANAGE,
    danger: true,
    run: ({ id: project }) => call("volume", "POST", `/types/${type.id}/action`, { removeProjectAccess: { project } }),
    command: ({ id: project }) => command("openstack volume type unset --project", project, type.id),
  };
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return <ProjectList rows={data.map((row) => ({ id: row.project_id }))} remove={remove} done={reload} />;
}

/** The projects that may use something private, by their ids. */
export function ProjectList({
  rows,
  remove,
  done,
}: {
  rows: { id: string }[];
  remove: Action<{ id: string }>;
  done: () => void;
}): VNode {
  return (
    <>
      <h2>{t("Projects that may use it")}</h2>
      <Table
        scope="project-"
        label={t("Projects that may use it")}
        rows={rows}
        idOf={(row) => row.id}
        nameOf={(row) => called(row.id)}
        actions={[remove]}
        done={done}
        empty={<p>{t("No project may use it yet.")}</p>}
        columns={[{ name: "name", title: t("Project"), narrow: true, text: (row) => called(row.id) }]}
      />
    </>
  );
}

// --- volumes: name, type, owner

const isIdle = (row: Volume): boolean => row.status === "available";

export const rename = (): Action<Volume> => ({
  name: "rename",
  label: t("Rename"),
  rule: "volume:update",
  single: true,
  fieldsOf: (row) => [
    { name: "name", label: t("Name"), required: true, initial: row.name ?? "" },
    { name: "description", label: t("Description"), initial: row.description ?? "" },
  ],
  run: (row, values) =>
    call("volume", "PUT", `/volumes/${row.id}`, { volume: { name: values.name, description: values.description } }),
  command: (row, values) =>
    command(
      "openstack volume set",
      ["--name", values.name],
      values.description && ["--description", values.description],
      row.id,
    ),
});

export const retype = (): Action<Volume> => ({
  name: "retype",
  label: t("Change the type"),
  rule: "volume:retype",
  single: true,
  when: isIdle,
  fields: [{ name: "type", label: t("Volume type"), kind: "select", required: true, choices: typeChoices }],
  run: (row, values) =>
    call("volume", "POST", `/volumes/${row.id}/action`, {
      "os-retype": { new_type: values.type, migration_policy: "never" },
    }),
  command: (row, values) => command("openstack volume set --type", values.type || "TYPE", row.id),
});

export const offer = (): Action<Volume> =>
  resulting<Volume, Transfer>({
    name: "offer",
    label: t("Give to another project"),
    rule: "volume:create_transfer",
    single: true,
    when: isIdle,
    confirm: t("The other project accepts it with an id and a key, which you hand over. Its snapshots go with it."),
    run: async (row) =>
      (await call("volume", "POST", "/volume-transfers", { transfer: { volume_id: row.id } })).transfer,
    command: (row) => command("openstack volume transfer request create", row.id),
    result: (found) => (
      <>
        <p>
          ID: <code>{found.id}</code>
        </p>
        <p>{t("The key is shown only now.")}</p>
        <pre class="secret" tabIndex={0}>
          {found.auth_key}
        </pre>
      </>
    ),
  });

export const withdraw = (): Action<Volume> => ({
  name: "withdraw",
  label: t("Withdraw the offer"),
  rule: "volume:delete_transfer",
  when: (row) => row.status === "awaiting-transfer",
  run: async (row) => {
    const found = (await all("volume", "/volume-transfers", "transfers")).find((item) => item.volume_id === row.id);
    if (!found) throw new Error(t("The offer is gone. The other project may have accepted it."));
    await call("volume", "DELETE", `/volume-transfers/${found.id}`);
  },
  command: () => "openstack volume transfer request delete TRANSFER",
});

export const accept = (): Action<object> => ({
  name: "accept",
  label: t("Accept a volume"),
  rule: "volume:accept_transfer",
  fields: [
    { name: "offer", label: t("ID of the offer"), required: true },
    { name: "key", label: t("Key"), required: true },
  ],
  run: (_, values) =>
    call("volume", "POST", `/volume-transfers/${encodeURIComponent(values.offer.trim())}/accept`, {
      accept: { auth_key: values.key.trim() },
    }),
  command: (_, values) =>
    command(
      "openstack volume transfer request accept",
      ["--auth-key", values.key || "KEY"],
      values.offer || "TRANSFER",
    ),
});
