// QoS policies: limits of bandwidth and marks of packets, which a network's ports have.
import { call, list } from "./api";
import type { Kind } from "./listing";
import { t } from "./messages";
import type { Network, QosPolicy, QosRule } from "./network.types";
import { Table } from "./table";
import { type Action, type Choice, command, Name, type Values } from "./ui";

const LIMIT = "bandwidth_limit";
const optionOf = (direction: string): string => (direction === "ingress" ? "--ingress" : "--egress");

/** A rule in words. */
export function ruleWords(rule: QosRule): string {
  if (rule.type !== LIMIT) return `${t("Marks packets with DSCP")} ${rule.dscp_mark}`;
  const rate = rule.max_kbps! >= 1000 ? `${rule.max_kbps! / 1000} Mbit/s` : `${rule.max_kbps} kbit/s`;
  return `${rule.direction === "ingress" ? t("To the guest at most") : t("From the guest at most")} ${rate}`;
}

const bodyOf = (values: Values): object =>
  values.what === "dscp_marking"
    ? { dscp_mark: Number(values.value) }
    : { max_kbps: Math.round(Number(values.rate) * 1000), direction: values.direction };

export const qosPolicies = (): Kind<QosPolicy> => ({
  path: "qos-policies",
  services: ["network"],
  title: t("QoS policies"),
  one: t("QoS policy"),
  rule: "get_policy",
  load: () => list("network", "/qos/policies", "policies"),
  empty: t("There are no QoS policies. One limits the bandwidth of a network's ports."),
  command: "openstack network qos policy list",
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: (row) => row.name,
      cell: (row) => <Name to={["qos-policies", row.id]}>{row.name}</Name>,
    },
    { name: "rules", title: t("Rules"), narrow: true, text: (row) => row.rules.map(ruleWords).join("; ") },
    { name: "for", title: t("For"), text: (row) => (row.shared ? t("all projects") : t("some projects")) },
    { name: "description", title: t("Description"), text: (row) => row.description },
  ],
  facts: (row) => [
    [t("For"), row.shared ? t("all projects") : t("some projects")],
    [t("Description"), row.description],
  ],
  more: (row, reload) => {
    const remove: Action<QosRule> = {
      name: "remove",
      label: t("Remove"),
      rule: ["delete_policy_bandwidth_limit_rule", "delete_policy_dscp_marking_rule"],
      danger: true,
      run: (rule) => call("network", "DELETE", `/qos/policies/${row.id}/${rule.type}_rules/${rule.id}`),
      command: (rule) => command("openstack network qos rule delete", row.id, rule.id),
    };
    return (
      <>
        <h2>{t("Rules")}</h2>
        <Table
          scope="rule-"
          label={t("Rules")}
          rows={row.rules}
          idOf={(rule) => rule.id}
          nameOf={ruleWords}
          actions={[remove]}
          done={reload}
          empty={<p>{t("No rules: nothing is limited.")}</p>}
          columns={[{ name: "rule", title: t("Rule"), narrow: true, text: ruleWords }]}
        />
      </>
    );
  },
  create: [
    {
      name: "create",
      label: t("Create a QoS policy"),
      rule: "create_policy",
      fields: [
        { name: "name", label: t("Name"), required: true },
        { name: "description", label: t("Description") },
        { name: "public", label: t("For all projects"), kind: "checkbox" },
      ],
      run: (_, values) =>
        call("network", "POST", "/qos/policies", {
          policy: { name: values.name, description: values.description, shared: values.public },
        }),
      command: (_, values) =>
        command(
          "openstack network qos policy create",
          values.public && "--share",
          values.description && ["--description", values.description],
          values.name || "NAME",
        ),
    },
  ],
  actions: [
    {
      name: "rule",
      label: t("Add a rule"),
      rule: ["create_policy_bandwidth_limit_rule", "create_policy_dscp_marking_rule"],
      single: true,
      fields: [
        {
          name: "what",
          label: t("What"),
          kind: "select",
          required: true,
          choices: [
            { value: LIMIT, label: t("Limit of bandwidth") },
            { value: "dscp_marking", label: t("Mark of packets (DSCP)") },
          ],
        },
        {
          name: "rate",
          label: "Mbit/s",
          kind: "number",
          min: 1,
          required: true,
          initial: "100",
          when: (values) => values.what !== "dscp_marking",
        },
        {
          name: "direction",
          label: t("Direction"),
          kind: "select",
          required: true,
          choices: [
            { value: "egress", label: t("from the guest") },
            { value: "ingress", label: t("to the guest") },
          ],
          when: (values) => values.what !== "dscp_marking",
        },
        {
          name: "value",
          label: "DSCP",
          kind: "number",
          min: 0,
          max: 56,
          required: true,
          initial: "46",
          when: (values) => values.what === "dscp_marking",
        },
      ],
      run: (row, values) => {
        const kind = `${values.what}_rule`;
        return call("network", "POST", `/qos/policies/${row.id}/${kind}s`, { [kind]: bodyOf(values) });
      },
      command: (row, values) =>
        values.what === "dscp_marking"
          ? command("openstack network qos rule create --type dscp-marking", ["--dscp-mark", values.value], row.id)
          : command(
              "openstack network qos rule create --type bandwidth-limit",
              ["--max-kbps", Number(values.rate) * 1000],
              optionOf(values.direction),
              row.id,
            ),
    },
    {
      name: "delete",
      label: t("Delete"),
      rule: "delete_policy",
      danger: true,
      confirm: t("This works once no network and no port has it any more."),
      run: (row) => call("network", "DELETE", `/qos/policies/${row.id}`),
      command: (row) => command("openstack network qos policy delete", row.id),
    },
  ],
});

const policyChoices = async (): Promise<Choice[]> => [
  ...(await list("network", "/qos/policies", "policies")).map((row) => ({ value: row.id, label: row.name })),
  { value: "", label: t("none") },
];

/** Gives a network a QoS policy, or takes it away. */
export const limit = (when: (row: Network) => boolean): Action<Network> => ({
  name: "qos",
  label: t("Set the QoS policy"),
  rule: ["update_network", "get_policy"],
  single: true,
  when,
  fieldsOf: (row) => [
    {
      name: "policy",
      label: t("QoS policy"),
      kind: "select",
      first: !row.qos_policy_id,
      initial: row.qos_policy_id ?? "",
      choices: policyChoices,
    },
  ],
  run: (row, values) =>
    call("network", "PUT", `/networks/${row.id}`, { network: { qos_policy_id: values.policy || null } }),
  command: (row, values) =>
    command("openstack network set", values.policy ? ["--qos-policy", values.policy] : "--no-qos-policy", row.id),
});
