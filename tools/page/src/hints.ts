// What is missing when an API refuses something, and where a user finds it.
import { known } from "./api";
import { t } from "./messages";

const ID = /\b[\da-f]{8}-?(?:[\da-f]{4}-?){3}[\da-f]{12}\b/gi;

/** A text of an API with names in place of ids, where the names are known. The beginning of the id stays. */
export const withNames = (text: string): string =>
  text.replace(ID, (id) => (known.get(id) ? `${known.get(id)} (${id.slice(0, 8)})` : id));

/** What the words of an API mean: what is missing, in which view. The first one that fits counts. */
const HINTS = (): [RegExp, string, string][] => [
  [
    /not reachable from (subnet|network)/i,
    t("A router has to connect the network with an external network."),
    "routers",
  ],
  [/required by one or more floating/i, t("Disassociate the floating addresses first."), "floating-addresses"],
  [/still has ports/i, t("Disconnect its networks first."), "routers"],
  [/ports still in use on the network/i, t("Delete or detach what uses it first."), "servers"],
  [/security group .* is in use/i, t("Remove it from its servers first."), "servers"],
  [/requires a subnet|requires a fixedip/i, t("The network has no address range. Add one."), "networks"],
  [/multiple possible networks/i, t("There are several networks. Choose one."), "networks"],
  [/no fixed ip addresses are left/i, t("The address range is used up. Add a network."), "networks"],
  [/no more floating ips/i, t("The external network has no free address. Release one."), "floating-addresses"],
  [/invalid key_name|keypair .* not found/i, t("There is no such key. Add it first."), "keys"],
  [/quota exceeded|maximum number of ports/i, t("The quota is used up. Delete something, or ask for more."), "quotas"],
];

export function hintOf(text: string): { words: string; view: string } | null {
  const found = HINTS().find(([pattern]) => pattern.test(text));
  return found ? { words: found[1], view: found[2] } : null;
}
