// The user's own second factor: a key of one-time codes, which an app takes from a drawing that the browser makes.
import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { encode } from "uqr";
import { call, list } from "./api";
import type { SecretCredential } from "./identity.types";
import { t } from "./messages";
import { appAddress, isRight, makeSecret } from "./onetime";
import { shared, useData } from "./state";
import { type Action, ActionDialog, command, Dialog, Failure, Waiting } from "./ui";

/** Modules around the drawing that stay empty, as the standard of QR codes demands. */
const BORDER = 4;

/** The path of all dark modules of a QR code, and the modules of a side. */
export function drawing(text: string): { path: string; size: number } {
  const { data, size } = encode(text, { border: BORDER });
  const dark = data.flatMap((row, y) => row.map((is, x) => (is ? `M${x} ${y}h1v1h-1z` : "")));
  return { path: dark.join(""), size };
}

function ForApp({ secret }: { secret: string }): VNode {
  const { path, size } = drawing(appAddress(secret, shared.session!.user.name, location.hostname));
  return (
    <>
      <svg class="qr" viewBox={`0 0 ${size} ${size}`} role="img" aria-label={t("QR code of the key")}>
        <path d={path} />
      </svg>
      <p>{t("An app without a camera takes the key as text:")}</p>
      <pre class="secret" tabIndex={0}>
        {secret.replace(/.{4}(?=.)/g, "$& ")}
      </pre>
    </>
  );
}

/** Add a key, once a code shows that the app has it. */
export const add = (secret: string): Action<object> => ({
  name: "factor",
  label: t("Add a second factor"),
  confirm: t("Scan the code with an app for one-time codes. Then enter the six digits that the app shows."),
  above: () => <ForApp secret={secret} />,
  fields: [
    {
      name: "code",
      label: t("Code of the app"),
      required: true,
      pattern: "\\s*\\d{3}\\s*\\d{3}\\s*",
      help: t("The key is stored only if the code is right."),
    },
  ],
  run: async (_, values) => {
    if (!(await isRight(secret, values.code, Date.now() / 1000)))
      throw new Error(t("This is not the present code. Compare the clocks of this machine and of the app."));
    const credential = { type: "totp", user_id: shared.session!.user.id, blob: secret };
    await call("identity", "POST", "/credentials", { credential });
  },
  command: () => command("openstack credential create --type totp", shared.session!.user.name, "KEY"),
  result: () => (
    <p>{t("The key is stored. A log-in takes its codes now, and demands them as soon as an administrator says so.")}</p>
  ),
});

export const remove = (keys: SecretCredential[]): Action<object> => ({
  name: "unfactor",
  label: t("Remove the second factor"),
  danger: true,
  confirm: t("If an administrator demands a code from you, you cannot log in until there is another key."),
  run: async () => {
    for (const key of keys) await call("identity", "DELETE", `/credentials/${key.id}`);
  },
  command: () => keys.map((key) => command("openstack credential delete", key.id)).join("\n"),
});

export function SecondFactor({ close }: { close: () => void }): VNode {
  const secret = useMemo(makeSecret, []);
  const user = shared.session!.user;
  const { data, error, reload } = useData(
    () => list("identity", `/credentials?type=totp&user_id=${user.id}`, "credentials"),
    ["factor", user.id],
  );
  if (!data)
    return (
      <Dialog title={t("Second factor")} close={close}>
        <div class="body">{error ? <Failure error={error} retry={reload} /> : <Waiting />}</div>
      </Dialog>
    );
  return (
    <ActionDialog
      action={data.length ? remove(data) : add(secret)}
      rows={[{}]}
      nameOf={() => user.name}
      close={close}
      done={() => undefined}
    />
  );
}
