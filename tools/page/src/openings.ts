// What a new server lets in, as ticks: each one is a security group, which is found by its rules, or made.
import { call, list } from "./api";
import { t } from "./messages";
import type { SecurityGroup, SecurityRule } from "./network.types";
import { freeName } from "./newkey";
import { shared } from "./state";
import { command } from "./ui";

type Wanted = Pick<SecurityRule, "ethertype" | "port_range_min" | "remote_ip_prefix">;

export interface Opening {
  name: string;
  label: string;
  group: string; // the name of a group that is made
  rules: Wanted[];
}

type End = [ethertype: "IPv4" | "IPv6", range: string];
const EVERYWHERE: End[] = [
  ["IPv4", "0.0.0.0/0"],
  ["IPv6", "::/0"],
];

/** `me`: the browser's address, as other machines see it. Without one, its user is let in from everywhere. */
export function openings(me: string | null): Opening[] {
  const own: End[] = me ? [me.includes(":") ? ["IPv6", `${me}/128`] : ["IPv4", `${me}/32`]] : EVERYWHERE;
  const of = (ends: End[], ...ports: number[]): Wanted[] =>
    ends.flatMap(([ethertype, remote_ip_prefix]) =>
      ports.map((port_range_min) => ({ ethertype, port_range_min, remote_ip_prefix })),
    );
  const from = me ? `${t("from my address")} (${me})` : t("from everywhere");
  const end = me ? `-${me.replaceAll(":", "-")}` : "";
  return [
    { name: "ssh", label: `SSH ${from}`, group: `ssh${end}`, rules: of(own, 22) },
    { name: "web", label: `HTTP, HTTPS ${t("from everywhere")}`, group: "web", rules: of(EVERYWHERE, 80, 443) },
    { name: "rdp", label: `RDP ${from}`, group: `rdp${end}`, rules: of(own, 3389) },
  ];
}

const partsOf = (rule: Partial<SecurityRule>): string =>
  [
    rule.ethertype,
    rule.protocol,
    rule.port_range_min,
    rule.port_range_max,
    rule.remote_ip_prefix || EVERYWHERE.find(([family]) => family === rule.ethertype)?.[1],
    rule.remote_group_id ?? "",
  ].join();
const sent = (rule: Wanted) => ({
  ...rule,
  direction: "ingress" as const,
  protocol: "tcp",
  port_range_max: rule.port_range_min,
});

/** The group that lets in exactly what the opening does, or undefined. */
export function groupOf(opening: Opening, groups: SecurityGroup[]): SecurityGroup | undefined {
  const wanted = opening.rules.map((rule) => partsOf(sent(rule))).sort();
  return groups.find((group) => {
    const rules = group.security_group_rules.filter((rule) => rule.direction === "ingress");
    return rules.map(partsOf).sort().join(";") === wanted.join(";");
  });
}

export const nameFor = (opening: Opening, groups: SecurityGroup[]): string =>
  freeName(
    opening.group,
    groups.map((group) => group.name),
  );

/** The groups of the project. An administrator's list would have those of all projects. */
export const ownGroups = (): Promise<SecurityGroup[]> =>
  list("network", `/security-groups?project_id=${shared.session!.project!.id}`, "security_groups");

/** The id of the opening's group, which is made if there is none. */
export async function groupFor(opening: Opening): Promise<string> {
  const groups = await ownGroups();
  const found = groupOf(opening, groups);
  if (found) return found.id;
  const { security_group } = await call("network", "POST", "/security-groups", {
    security_group: { name: nameFor(opening, groups) },
  });
  try {
    for (const rule of opening.rules)
      await call("network", "POST", "/security-group-rules", {
        security_group_rule: { security_group_id: security_group.id, ...sent(rule) },
      });
  } catch (error) {
    // A group with some of the rules would not be found again.
    await call("network", "DELETE", `/security-groups/${security_group.id}`);
    throw error;
  }
  return security_group.id;
}

/** The commands that make the opening's group, by its name. */
export const groupCommands = (opening: Opening, name: string): string[] => [
  command("openstack security group create", name),
  ...opening.rules.map((rule) =>
    command(
      "openstack security group rule create",
      ["--ethertype", rule.ethertype, "--protocol", "tcp", "--dst-port", rule.port_range_min!],
      ["--remote-ip", rule.remote_ip_prefix!],
      name,
    ),
  ),
];
