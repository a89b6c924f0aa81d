// Parts of which every view is made: tables, forms in dialogs, states, times, and errors.
import { Component, type ComponentChildren, createContext, type VNode } from "preact";
import { useContext, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";
import { madeBy, markOf, unmarked } from "./called";
import { hintOf, withNames } from "./hints";
import { Icon } from "./icons";
import { t } from "./messages";
import { notify } from "./noticeboard";
import { link, may } from "./state";

// --- words

export function size(megabytes: number): string {
  if (megabytes < 1024) return `${Math.round(megabytes)} MB`;
  const gigabytes = megabytes / 1024;
  return gigabytes < 1024 ? `${trim(gigabytes)} GB` : `${trim(gigabytes / 1024)} TB`;
}
const trim = (value: number): string => (value < 10 && value % 1 ? value.toFixed(1) : String(Math.round(value)));

export function parseTime(text: string): Date {
  return new Date(/Z|[+-]\d\d:?\d\d$/.test(text) ? text : `${text}Z`);
}

export function ago(text: string | null | undefined): string {
  if (!text) return "";
  const seconds = Math.max(0, (Date.now() - parseTime(text).getTime()) / 1000);
  if (seconds < 60) return t("just now");
  const steps: [number, Intl.RelativeTimeFormatUnit][] = [
    [86400, "day"],
    [3600, "hour"],
    [60, "minute"],
  ];
  const [length, unit] = steps.find(([length]) => seconds >= length)!;
  return new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto" }).format(
    -Math.floor(seconds / length),
    unit,
  );
}

export function Time({ at }: { at: string | null | undefined }): VNode | null {
  if (!at) return null;
  const date = parseTime(at);
  return (
    <time dateTime={date.toISOString()} title={date.toLocaleString(document.documentElement.lang)}>
      {ago(at)}
    </time>
  );
}

export function duration(from: string, to: string): string {
  const seconds = (parseTime(to).getTime() - parseTime(from).getTime()) / 1000;
  if (seconds < 1) return `${Math.max(0, Math.round(seconds * 1000))} ms`;
  if (seconds < 90) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

const TONES: Record<string, string[]> = {
  good: [
    "active",
    "available",
    "up",
    "enabled",
    "success",
    "in-use",
    "completed",
    "complete",
    "confirmed",
    "done",
    "yes",
    "online",
  ],
  bad: ["error", "down", "failure", "failed", "killed", "error_deleting", "no", "critical"],
  busy: [
    "build",
    "queued",
    "saving",
    "importing",
    "creating",
    "deleting",
    "attaching",
    "detaching",
    "resize",
    "migrating",
    "running",
    "reboot",
    "hard_reboot",
    "rebuild",
    "pending",
    "uploading",
  ],
  warn: [
    "verify_resize",
    "disabled",
    "rescue",
    "paused",
    "suspended",
    "deactivated",
    "forced down",
    "warning",
    "degraded",
    "offline",
  ],
};

export function Status({ value, busy }: { value: string; busy?: boolean | undefined }): VNode {
  const word = value.toLowerCase();
  const tone = busy ? "busy" : (Object.keys(TONES).find((name) => TONES[name]!.includes(word)) ?? "plain");
  return <span class={`status ${tone}`}>{words(value)}</span>;
}

export const words = (value: string): string => {
  const text = value
    .replace(/([a-z])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .replaceAll("_", " ");
  return t(text.charAt(0).toUpperCase() + text.slice(1));
};

// --- errors

export function Failure({ error, retry }: { error: Error | null | undefined; retry?: () => void }): VNode | null {
  if (!error) return null;
  const request = error instanceof ApiError && error.request ? error.request : "";
  const hint = error instanceof ApiError ? hintOf(error.message) : null;
  return (
    <div class="failure" role="alert">
      <strong>{withNames(t(error.message))}</strong>
      {hint && <a href={link(hint.view)}>{hint.words}</a>}
      {request && (
        <small>
          {t("Request")} {request}
        </small>
      )}
      {retry && (
        <button type="button" onClick={retry}>
          {t("Try again")}
        </button>
      )}
    </div>
  );
}

/** A part of the page whose defect does not take the rest with it. */
export class Guard extends Component<{ children: ComponentChildren; place: string }, { error: Error | null }> {
  override state = { error: null as Error | null };
  static override getDerivedStateFromError(error: Error) {
    return { error };
  }
  override componentDidUpdate(previous: { place: string }) {
    if (previous.place !== this.props.place && this.state.error) this.setState({ error: null });
  }
  override render() {
    return this.state.error ? (
      <Failure error={this.state.error} retry={() => this.setState({ error: null })} />
    ) : (
      this.props.children
    );
  }
}

/** The place of what is loaded, as an outline. It is drawn once the answer takes a while. */
export const Waiting = (): VNode => (
  <div class="waiting" role="status">
    <span class="hidden">{t("Loading…")}</span>
    {[...Array(6).keys()].map((row) => (
      <i key={row} />
    ))}
  </div>
);

/** What a view says that has nothing to show. `icon`: of the things that it would show. */
export function Empty({ icon, children }: { icon?: string; children: ComponentChildren }): VNode {
  return (
    <div class="empty">
      {icon && <Icon name={icon} />}
      {children}
    </div>
  );
}

// --- the equivalent command

export const quote = (text: unknown): string =>
  /^[\w@%+=:,./-]+$/.test(String(text)) ? String(text) : `'${String(text).replaceAll("'", `'\\''`)}'`;
export const command = (...parts: (string | number | false | null | undefined | (string | number)[])[]): string =>
  parts
    .filter((part) => part !== false && part !== null && part !== undefined && part !== "")
    .flat()
    .map((part, at) => (at ? quote(part) : part))
    .join(" ");

/** A button that copies a text. Browsers have a clipboard for pages with TLS, or of their own machine. */
export function Copy({ text, what = "" }: { text: string; what?: string }): VNode | null {
  const [copied, set] = useState("");
  if (!navigator.clipboard) return null;
  const label = copied === text ? t("Copied") : t("Copy");
  return (
    <button
      type="button"
      aria-label={`${label} ${what}`.trim()}
      title={label}
      onClick={() => void navigator.clipboard.writeText(text).then(() => set(text))}
    >
      <Icon name={copied === text ? "check" : "copy"} />
      {copied === text && label}
    </button>
  );
}

export function Command({ text, label = t("The same as a command") }: { text: string; label?: string }): VNode {
  return (
    <div class="command">
      <span>{label}</span>
      <code tabIndex={0} role="group" aria-label={label}>
        {text}
      </code>
      <Copy text={text} />
    </div>
  );
}

// --- dialogs

/** What a dialog begins on: its first field, or else the button that changes least. */
const FIRST = [
  ".body :is(input:not([readonly]), select, textarea)",
  ".answers [type=submit]:not(.danger)",
  ".answers button",
];

export function Dialog({
  title,
  close,
  children,
  wide,
  locked,
  filled,
}: {
  title: string;
  close: () => void;
  children: ComponentChildren;
  wide?: boolean;
  locked?: boolean;
  filled?: boolean; // it has what a user has entered, and is not left without a question
}): VNode {
  const element = useRef<HTMLDialogElement>(null);
  const [asks, setAsks] = useState(false);
  useLayoutEffect(() => {
    const dialog = element.current!;
    if (!dialog.open) dialog.showModal();
    FIRST.map((part) => dialog.querySelector<HTMLElement>(part))
      .find(Boolean)
      ?.focus();
    return () => dialog.close();
  }, []);
  // The question takes the focus, and gives it back. Without it, keys would not reach the dialog.
  useLayoutEffect(() => {
    if (!asks) return;
    const before = document.activeElement as HTMLElement | null;
    element.current!.querySelector<HTMLElement>(".question button")?.focus();
    return () => before?.focus();
  }, [asks]);
  const leave = (event: Event) => {
    event.preventDefault();
    if (locked) return;
    if (filled) setAsks(!asks);
    else close();
  };
  return (
    <dialog
      ref={element}
      class={wide ? "wide" : ""}
      aria-label={title}
      onCancel={leave}
      onKeyDown={(event) => event.key === "Escape" && leave(event)}
    >
      <div class="title">
        <h2>{title}</h2>
        {!locked && (
          <button type="button" class="plain" aria-label={t("Close")} onClick={leave}>
            <Icon name="remove" />
          </button>
        )}
      </div>
      {children}
      {asks && (
        <div class="failure question" role="alert">
          <strong>{t("What you have entered would be lost.")}</strong>
          <button type="button" onClick={() => setAsks(false)}>
            {t("Go on with it")}
          </button>
          <button type="button" class="danger quiet" onClick={close}>
            {t("Discard it")}
          </button>
        </div>
      )}
    </dialog>
  );
}

// --- forms

export interface Choice {
  value: string;
  label: string;
}
export interface Field {
  name: keyof Values;
  label: string;
  kind?: "text" | "password" | "number" | "select" | "checkbox" | "area" | "file" | "many";
  choices?: Choice[] | (() => Promise<Choice[]>);
  initial?: string | boolean | string[];
  required?: boolean;
  help?: string;
  min?: number;
  max?: number;
  pattern?: string;
  when?: (values: Values) => boolean;
  first?: boolean; // the first choice is the usual one, although there is an empty one
}
type TextName =
  | "address"
  | "after"
  | "algorithm"
  | "before"
  | "cidr"
  | "code"
  | "cores"
  | "daily"
  | "days"
  | "description"
  | "direction"
  | "disk"
  | "dns"
  | "every"
  | "external"
  | "flavor"
  | "floatingip"
  | "format"
  | "from"
  | "gigabytes"
  | "group"
  | "high"
  | "host"
  | "hour"
  | "hourly"
  | "image"
  | "instances"
  | "internal"
  | "key"
  | "low"
  | "minute"
  | "monitor"
  | "name"
  | "network"
  | "offer"
  | "old"
  | "outside"
  | "password"
  | "path"
  | "policy"
  | "pool"
  | "port"
  | "project"
  | "protocol"
  | "ram"
  | "rate"
  | "reason"
  | "remote"
  | "role"
  | "security_group_rule"
  | "security_group"
  | "router"
  | "server"
  | "server_groups"
  | "size"
  | "snapshots"
  | "state"
  | "subnet"
  | "tags"
  | "to"
  | "type"
  | "url"
  | "value"
  | "vcpus"
  | "visibility"
  | "volume"
  | "volumes"
  | "weekday"
  | "weekly"
  | "what"
  | "zone";
/** What a user has entered, by the names of all fields. A form has some of them. */
export interface Values
  extends Record<TextName, string>,
    Record<"all" | "back" | "public", boolean>,
    Record<"servers" | "subnets", string[]> {
  file: File | null;
}
type Value = Values[keyof Values];

/** Changes the newest values: two changes may come before the next render. */
type Change = (update: (values: Values) => Values) => void;

export function Fields({ fields, values, change }: { fields: Field[]; values: Values; change: Change }): VNode {
  return (
    <>
      {fields
        .filter((field) => !field.when || field.when(values))
        .map((field) => (
          <Input key={field.name} field={field} values={values} change={change} />
        ))}
    </>
  );
}

/**
 * What a list of choices begins with: what is chosen, the usual one, or the only one. Things of the cloud have no other
 * default, as it would be a thing that nobody has chosen.
 */
export function begun(field: Field, found: Choice[], value: unknown): string {
  const first = found[0]?.value ?? "";
  if (field.first && !value) return first;
  if (found.some((choice) => choice.value === value)) return String(value);
  return Array.isArray(field.choices) || found.length === 1 ? first : "";
}

export function Input({ field, values, change }: { field: Field; values: Values; change: Change }): VNode {
  const [choices, setChoices] = useState<Choice[]>(Array.isArray(field.choices) ? field.choices : []);
  const [error, setError] = useState<Error | null>(null);
  const kind = field.kind ?? "text";
  const id = `field-${field.name}`;
  const set = (value: Value) => change((old) => ({ ...old, [field.name]: value }));
  // biome-ignore lint/correctness/useExhaustiveDependencies: choices that are given may be other ones, and a function of them stays.
  useEffect(() => {
    const use = (found: Choice[]) => {
      setChoices(found);
      if (kind === "select") change((old) => ({ ...old, [field.name]: begun(field, found, old[field.name]) }));
    };
    if (typeof field.choices === "function") field.choices().then(use, setError);
    else if (field.choices) use(field.choices);
  }, [Array.isArray(field.choices) ? JSON.stringify(field.choices) : ""]);
  const value = values[field.name];
  const text = typeof value === "string" ? value : "";
  const many = Array.isArray(value) ? value : [];
  const common = {
    id,
    name: field.name,
    required: field.required ?? false,
    "aria-describedby": field.help ? `${id}-help` : undefined,
  };
  let control: VNode;
  if (kind === "select")
    control = (
      <select {...common} value={text} onChange={(event) => set(event.currentTarget.value)}>
        {(text === "" || !field.required) && choices.every((choice) => choice.value) && (
          <option value="">{choices.length ? t("Choose…") : ""}</option>
        )}
        {choices.map((choice) => (
          <option key={choice.value} value={choice.value}>
            {choice.label}
          </option>
        ))}
      </select>
    );
  else if (kind === "many")
    control = (
      <div class="many" id={id} role="group" aria-label={field.label}>
        {choices.map((choice) => (
          <label key={choice.value}>
            <input
              type="checkbox"
              checked={many.includes(choice.value)}
              onChange={(event) =>
                set(
                  event.currentTarget.checked ? [...many, choice.value] : many.filter((item) => item !== choice.value),
                )
              }
            />
            {choice.label}
          </label>
        ))}
        {choices.length === 0 && <small>{t("There is nothing to choose.")}</small>}
      </div>
    );
  else if (kind === "area")
    control = (
      <textarea
        {...common}
        rows={6}
        spellcheck={false}
        value={text}
        onInput={(event) => set(event.currentTarget.value)}
      />
    );
  else if (kind === "file")
    control = <input {...common} type="file" onChange={(event) => set(event.currentTarget.files?.[0] ?? null)} />;
  else if (kind === "checkbox")
    return (
      <label class="check" for={id}>
        <input id={id} type="checkbox" checked={!!value} onChange={(event) => set(event.currentTarget.checked)} />{" "}
        {field.label}
        {field.help && <small>{field.help}</small>}
      </label>
    );
  else
    control = (
      <input
        {...common}
        type={kind as "text"}
        autocomplete={kind === "password" ? "new-password" : "off"}
        min={field.min}
        max={field.max}
        pattern={field.pattern}
        value={text}
        onInput={(event) => set(event.currentTarget.value)}
      />
    );
  return (
    <div class="field">
      {kind === "many" ? (
        <span class="label">{field.label}</span>
      ) : (
        <label for={id}>
          {field.label}
          {field.required ? "" : <i> {t("optional")}</i>}
        </label>
      )}
      {control}
      {field.help && <small id={`${id}-help`}>{field.help}</small>}
      <Failure error={error} />
    </div>
  );
}

export const initials = (fields: Field[]): Values =>
  Object.fromEntries(
    fields.map((field) => [
      field.name,
      field.initial ?? (field.kind === "checkbox" ? false : field.kind === "many" ? [] : ""),
    ]),
  ) as unknown as Values;

// --- actions

/** An action on a thing, and what comes of it. Members are methods, so that a list can have actions with other results. */
export interface Action<T, R = unknown> {
  name: string;
  label: string;
  rule?: string | string[];
  when?(row: T): boolean;
  danger?: boolean;
  confirm?: string;
  above?(row: T): VNode; // what the user sees before the click; for one row
  fields?: Field[];
  fieldsOf?(row: T): Field[]; // of an action on one row
  go?(row: T): void; // to another view, instead of a dialog
  run?(row: T, values: Values, progress: (text: string) => void): Promise<R>;
  command?(row: T, values: Values): string;
  result?(value: R): VNode | null;
  single?: boolean; // not for several rows
  after?(value: R): void;
  done?: string; // what is said of a row that it has changed
  undo?(row: T): Promise<unknown>; // takes it back; the row is the one of before
}

/** An action whose result is of a type of its own. */
export const resulting = <T, R>(action: Action<T, R>): Action<T> => action as Action<T>;

export const allowed = <T,>(action: Action<T>): boolean =>
  may(...(action.rule === undefined ? [] : [action.rule].flat()));
export const usable = <T,>(actions: Action<T>[], row: T): Action<T>[] =>
  actions.filter((action) => allowed(action) && (!action.when || action.when(row)));

/** Rows whose number one sees at a glance. An action on more of them asks for it. */
const FEW = 5;

/** How many rows are chosen, and how many of them the search does not show. */
export const chosenWords = (count: number, outside: number): string =>
  `${count} ${t("chosen")}${outside ? `, ${outside} ${t("not in this search")}` : ""}`;

/** Say what has changed, and offer the opposite action. */
function offerUndo<T>(action: Action<T>, rows: T[], nameOf: (row: T) => string, done: () => void): void {
  const names = rows.slice(0, FEW).map(nameOf).join(", ");
  notify({
    words: `${action.done}: ${rows.length > FEW ? `${names} … (${rows.length})` : names}`,
    undo: async () => {
      await Promise.all(rows.map((row) => action.undo!(row)));
      done();
    },
  });
}

/** A field without the mark of `nova-lite apply`, which a user does not edit. */
const withoutMark = (field: Field): Field =>
  typeof field.initial === "string" ? { ...field, initial: unmarked(field.initial) } : field;

/** What a user has entered, with the marks that the texts had. */
export function withMarks(fields: Field[], values: Values): Values {
  const marks = fields.map(({ name, initial }) => [name, typeof initial === "string" ? markOf(initial) : ""] as const);
  const texts = marks.filter(([, mark]) => mark).map(([name, mark]) => [name, `${values[name]} ${mark}`.trim()]);
  return { ...values, ...Object.fromEntries(texts) };
}

/** That things are of a file of `nova-lite apply`. */
function Managed({ rows }: { rows: unknown[] }): VNode | null {
  const things = rows as { name?: string | null; description?: string | null }[];
  const text = things.flatMap((row) => [row.description ?? "", row.name ?? ""]).find(madeBy);
  return text === undefined ? null : (
    <p class="managed" role="note">
      <Described text={markOf(text)} /> {madeBy(text)}. {t("A later apply sets its values back to those of the file.")}
    </p>
  );
}

/** The dialog of an action: its fields, what it means as a command, and what the API says to it. */
export function ActionDialog<T>({
  action,
  rows,
  nameOf,
  outside = 0,
  close,
  done,
}: {
  action: Action<T>;
  rows: T[];
  nameOf: (row: T) => string;
  outside?: number; // rows that the search does not show
  close: () => void;
  done: () => void;
}): VNode {
  // biome-ignore lint/correctness/useExhaustiveDependencies: a form keeps its fields while it is open.
  const given = useMemo(() => action.fields ?? action.fieldsOf?.(rows[0]!) ?? [], []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: they are those of the given ones.
  const fields = useMemo(() => given.map(withoutMark), []);
  const [entered, change] = useState<Values>(() => initials(fields));
  const values = withMarks(given, entered);
  const [busy, setBusy] = useState("");
  const [failures, setFailures] = useState<{ name: string; error: Error }[]>([]);
  const [left, setLeft] = useState(rows);
  const [result, setResult] = useState<VNode | null>(null);
  const [filled, setFilled] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setFailures([]);
    const failed: { name: string; error: Error; row: T }[] = [];
    const changed: T[] = [];
    let value: unknown = null;
    let count = 0;
    setBusy(t("Working…"));
    const queue = [...left];
    const work = async () => {
      for (let row = queue.shift(); row !== undefined; row = queue.shift()) {
        try {
          value = await action.run?.(row, values, setBusy);
          changed.push(row);
        } catch (error) {
          failed.push({ name: nameOf(row), error: error as Error, row });
        }
        count += 1;
        if (left.length > 1) setBusy(`${count} / ${left.length}`);
      }
    };
    await Promise.all(Array.from({ length: Math.min(4, left.length) }, work));
    setBusy("");
    done();
    if (action.undo && changed.length) offerUndo(action, changed, nameOf, done);
    if (failed.length) {
      setFailures(failed);
      setLeft(failed.map((item) => item.row));
    } else {
      const shown = action.result?.(value) ?? null;
      if (shown) setResult(shown);
      else close();
      action.after?.(value);
    }
  };
  const names = left.map(nameOf);
  const title =
    rows.length === 1 && names[0]
      ? `${action.label}: ${names[0]}`
      : rows.length === 1
        ? action.label
        : `${action.label} (${left.length})`;
  if (result)
    return (
      <Dialog key="result" title={title} close={close} wide>
        <div class="body">{result}</div>
        <div class="answers">
          <button type="button" class="primary" onClick={close}>
            {t("Close")}
          </button>
        </div>
      </Dialog>
    );
  return (
    <Dialog title={title} close={close} wide={!!action.above} filled={filled}>
      <form onSubmit={submit} onInput={() => setFilled(true)}>
        <div class="body">
          {action.confirm && <p>{action.confirm}</p>}
          {action.above?.(rows[0]!)}
          {rows.length > 1 && (
            <p class="names" tabIndex={0} role="group" aria-label={t("Chosen rows")}>
              {names.join(", ")}
            </p>
          )}
          {outside > 0 && <p class="other">{chosenWords(rows.length, outside)}</p>}
          <Fields fields={fields} values={entered} change={change} />
          {fields.length > 0 && <Managed rows={rows} />}
          {rows.length > FEW && (
            <div class="field">
              <label for="field-count">{`${t("Enter the number of chosen rows")}: ${left.length}`}</label>
              <input id="field-count" required autocomplete="off" inputMode="numeric" pattern={String(left.length)} />
            </div>
          )}
          {failures.slice(0, 10).map(({ name, error }) => (
            <div key={name}>
              {rows.length > 1 && <b>{name}</b>}
              <Failure error={error} />
            </div>
          ))}
          {action.command && left.length > 0 && (
            <Command text={left.map((row) => action.command!(row, values)).join("\n")} />
          )}
        </div>
        <div class="answers">
          <span role="status">{busy}</span>
          <button type="button" onClick={close}>
            {t("Cancel")}
          </button>
          <button type="submit" class={action.danger ? "danger" : "primary"} disabled={!!busy}>
            {action.label}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

const Reloading = createContext<() => void>(() => undefined);
export const ReloadContext = Reloading.Provider;

export function ActionButtons<T>({
  actions,
  row,
  nameOf,
  done,
  main = 3,
}: {
  actions: Action<T>[];
  row: T;
  nameOf: (row: T) => string;
  done?: () => void;
  main?: number;
}): VNode {
  const reload = useContext(Reloading);
  const [open, setOpen] = useState<Action<T> | null>(null);
  const choose = (action: Action<T>) => (action.go ? action.go(row) : setOpen(action));
  const found = usable(actions, row);
  const buttons = found.slice(0, main);
  const rest = found.slice(main);
  return (
    <div class="buttons">
      {buttons.map((action) => (
        <button
          key={action.name}
          type="button"
          class={action.danger ? "danger quiet" : ""}
          onClick={() => choose(action)}
        >
          {action.label}
        </button>
      ))}
      {rest.length > 0 && <Menu label={t("More")} actions={rest} choose={choose} />}
      {open && (
        <ActionDialog
          key={open.name}
          action={open}
          rows={[row]}
          nameOf={nameOf}
          close={() => setOpen(null)}
          done={done ?? reload}
        />
      )}
    </div>
  );
}

/** Height of the page's head, which covers what is below it. */
export const TOP = 52;

/** The item of a menu that a key leads to, or -1: arrows, Home, End, and the first letter of a name. */
export function itemAt(labels: string[], at: number, key: string): number {
  const count = labels.length;
  const steps: Record<string, number> = {
    Home: 0,
    End: count - 1,
    ArrowDown: at + 1,
    ArrowUp: at < 1 ? count - 1 : at - 1,
  };
  if (key in steps) return steps[key]! % count;
  const order = labels.map((_, step) => (at + 1 + step) % count);
  const isOne = key.length === 1 && key !== " ";
  return isOne ? (order.find((item) => labels[item]!.toLowerCase().startsWith(key.toLowerCase())) ?? -1) : -1;
}

export function Menu<T>({
  label,
  actions,
  choose,
  small,
}: {
  label: string;
  actions: Action<T>[];
  choose: (action: Action<T>) => void;
  small?: boolean; // its button is an icon
}): VNode {
  const [open, setOpen] = useState(false);
  const [up, setUp] = useState(false);
  const element = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!open) return setUp(false);
    const { bottom, height } = element.current!.querySelector("[role=menu]")!.getBoundingClientRect();
    setUp(bottom > innerHeight && element.current!.getBoundingClientRect().top > height + TOP);
  }, [open]);
  useEffect(() => {
    if (!open) return;
    element.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const leave = (event: Event) => {
      if (!element.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("pointerdown", leave);
    addEventListener("focusin", leave);
    return () => {
      removeEventListener("pointerdown", leave);
      removeEventListener("focusin", leave);
    };
  }, [open]);
  // The focus waits on the button, so that a dialog leads back to it.
  const back = () => {
    setOpen(false);
    element.current?.querySelector("button")?.focus();
  };
  const labels = actions.map((action) => action.label);
  const move = (event: KeyboardEvent) => {
    const items = [...(element.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = items.indexOf(document.activeElement as HTMLElement);
    const next = event.ctrlKey || event.metaKey || event.altKey ? -1 : itemAt(labels, at, event.key);
    if (event.key === "Escape") back();
    else if (next >= 0) items[next]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the items in it have the focus.
    <div class="menu" ref={element} onKeyDown={open ? move : undefined}>
      <button
        type="button"
        aria-haspopup="menu"
        aria-expanded={open}
        aria-label={small ? label : undefined}
        onClick={() => setOpen(!open)}
      >
        {small ? "" : label} <Icon name={small ? "more" : "open"} />
      </button>
      {open && (
        <div role="menu" aria-label={label} class={up ? "up" : ""}>
          {actions.map((action) => (
            <button
              key={action.name}
              type="button"
              role="menuitem"
              tabIndex={-1}
              class={action.danger ? "danger-text" : ""}
              onClick={() => {
                back();
                choose(action);
              }}
            >
              {action.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

/** What opens below a button, until Escape or a press beside it. */
export function Drop({ label, children }: { label: string; children: ComponentChildren }): VNode {
  const menu = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const leave = (event: Event) => {
      const escaped =
        event instanceof KeyboardEvent ? event.key === "Escape" : !menu.current?.contains(event.target as Node);
      if (escaped && menu.current) menu.current.open = false;
    };
    for (const name of ["pointerdown", "focusin", "keydown"]) addEventListener(name, leave);
    return () => {
      for (const name of ["pointerdown", "focusin", "keydown"]) removeEventListener(name, leave);
    };
  }, []);
  return (
    <details class="drop" ref={menu}>
      <summary>
        <span>{label}</span>
        <Icon name="open" />
      </summary>
      <div>{children}</div>
    </details>
  );
}

// --- details

/** A text without its mark of `nova-lite apply`, which becomes a tag. */
export function Described({ text }: { text: string }): VNode {
  const file = madeBy(text);
  return (
    <>
      {unmarked(text)}
      {file && (
        <small class="tag" title={`nova-lite apply: ${file}`}>
          {t("managed")}
        </small>
      )}
    </>
  );
}

export function Facts({ items }: { items: [string, ComponentChildren][] }): VNode {
  return (
    <dl class="facts">
      {items
        .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{typeof value === "string" ? <Described text={value} /> : value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** Shares of a total from which a meter warns, and from which little is left. */
const NEARLY = 0.8;
const FULL = 0.95;
export const toneOf = (share: number): string => (share < NEARLY ? "" : share < FULL ? "warn" : "bad");

/** How full something is. `more`: what would come to it. `even`: a full one is no reason to look. */
export function Meter({
  used,
  total,
  label,
  more = 0,
  even,
}: {
  used: number;
  total: number;
  label: string;
  more?: number;
  even?: boolean;
}): VNode {
  const share = (used + more) / total;
  const tone = even ? "" : toneOf(share);
  const parts: [string, number][] = [
    ["", Math.min(1, used / total)],
    ["more", Math.max(0, Math.min(1 - used / total, more / total))],
  ];
  return (
    <span
      class={`meter ${tone}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={total}
      aria-valuenow={Math.min(used + more, total)}
    >
      {parts.map(([kind, part]) => part > 0 && <i key={kind} class={kind} style={{ width: `${part * 100}%` }} />)}
    </span>
  );
}

export function Share({
  used,
  total,
  label,
  more = 0,
}: {
  used: number;
  total: number;
  label: string;
  more?: number;
}): VNode {
  return (
    <span class="share">
      {total > 0 && <Meter used={used} total={total} more={more} label={label} />}
      <span>{label}</span>
    </span>
  );
}

export const Name = ({ to, children }: { to: string[]; children: string }): VNode => (
  <a class="name" href={link(...to)}>
    {children ? <Described text={children} /> : t("(without a name)")}
  </a>
);

export function Head({
  title,
  children,
  note,
}: {
  title: ComponentChildren;
  children?: ComponentChildren;
  note?: ComponentChildren;
}): VNode {
  return (
    <header class="head">
      <div>
        <h1 tabIndex={-1}>{title}</h1>
        {note && <p class="note">{note}</p>}
      </div>
      <div class="buttons">{children}</div>
    </header>
  );
}
