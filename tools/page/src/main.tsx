// The page: log-in, navigation, and the view that the address names.
import { render, type VNode } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { AlertCount, Alerts, sees as seesAlerts } from "./alerts";
import { ApiError, call, onExpired, onOther, send } from "./api";
import { backups, policies } from "./backups";
import { balancers } from "./balancers";
import { visited } from "./finder";
import { aggregates, serverGroups } from "./groups";
import { Icon } from "./icons";
import type { Named, TokenReply } from "./identity.types";
import {
  credentials,
  floating,
  images,
  keys,
  networks,
  ownPassword,
  Quotas,
  routers,
  securityGroups,
  snapshots,
  volumes,
} from "./kinds";
import { late } from "./late";
import { Details, type Kind, Listing, visible } from "./listing";
import { follow, useLive } from "./live";
import { LANGUAGES, language, setLanguage, t } from "./messages";
import { notify } from "./noticeboard";
import { Notices } from "./notices";
import { checksCodes } from "./onetime";
import { Actions, Audit, flavors, hosts, projects, services, users } from "./operators";
import { Overview } from "./overview";
import { type Doing, Finder } from "./palette";
import { qosPolicies } from "./qos";
import { Servers } from "./servers";
import {
  addressed,
  enter,
  ForeignProjectError,
  forget,
  has,
  inProject,
  isShown,
  keepPositions,
  link,
  may,
  place,
  remember,
  remembered,
  type Session,
  scope,
  scrollBack,
  sessionOf,
  shared,
  useConnection,
  useData,
  usePlace,
} from "./state";
import { volumeTypes } from "./storage";
import { ActionDialog, allowed, Dialog, Drop, Empty, Failure, Guard, Head, Waiting } from "./ui";

const Create = late(async () => (await import("./create")).Create);
const Explorer = late(async () => (await import("./explorer")).Explorer);
const Usage = late(async () => (await import("./usage")).Usage);
const SecondFactor = late(async () => (await import("./secondfactor")).SecondFactor);
const Server = late(async () => (await import("./server")).Server);

type Group = [string, { path: string; title: string; show: boolean }[]];

function kinds(): Kind[] {
  const own = [volumes, snapshots, volumeTypes].map((make) => make()).filter(() => has("volume"));
  const net = [networks, routers, floating, securityGroups, qosPolicies]
    .map((make) => make())
    .filter(() => has("network"));
  return [
    ...(has("image") ? [images()] : []),
    ...own,
    ...net,
    ...(has("load_balancer") ? [balancers()] : []),
    serverGroups(),
    policies(),
    backups(),
    keys(),
    credentials(),
    hosts(),
    aggregates(),
    services(),
    users(),
    projects(),
    flavors(),
  ].filter(visible);
}

/** The rules of views that are no list of one kind. */
const RULES: Record<string, string[]> = {
  actions: ["os_compute_api:os-hypervisors:list-detail"],
  audit: ["os_compute_api:os-audit-events:list"],
  usage: ["os_compute_api:os-simple-tenant-usage:show"],
};
const sees = (view: string): boolean => (view === "alerts" ? seesAlerts() : may(...RULES[view]!));

function groups(found: Kind[]): Group[] {
  const of = (...paths: string[]) =>
    paths
      .map((path) => found.find((kind) => kind.path === path))
      .filter((kind): kind is Kind => !!kind)
      .map((kind) => ({ path: kind.path, title: kind.title, show: true }));
  // Who runs the hosts comes for them.
  const isOperators = found.some((kind) => kind.path === "hosts");
  const cloud: Group = [
    t("Cloud"),
    [
      { path: "alerts", title: t("Alerts"), show: sees("alerts") },
      ...of("hosts", "aggregates"),
      { path: "actions", title: t("Actions"), show: sees("actions") },
      ...of("services"),
      { path: "audit", title: t("Audit log"), show: sees("audit") },
      ...of("flavors", "users", "projects"),
    ],
  ];
  return [
    ["", [{ path: "overview", title: t("Overview"), show: true }]],
    ...(isOperators ? [cloud] : []),
    [
      t("Compute"),
      [
        { path: "servers", title: t("Servers"), show: true },
        ...of("images", "keys", "server-groups"),
        { path: "quotas", title: t("Quotas"), show: true },
        { path: "usage", title: t("Usage"), show: sees("usage") },
      ],
    ],
    [t("Storage"), of("volumes", "snapshots", "volume-types", "backup-policies", "backups")],
    [
      t("Network"),
      of("networks", "routers", "floating-addresses", "load-balancers", "security-groups", "qos-policies"),
    ],
    ...(isOperators ? [] : [cloud]),
    [t("Programs"), [...of("credentials"), { path: "api", title: t("API explorer"), show: true }]],
  ];
}

function View({ found }: { found: Kind[] }): VNode {
  const { path } = usePlace();
  const [first = "overview", second, third] = path;
  const main = useRef<HTMLElement>(null);
  const where = path.slice(0, 2).join("/");
  const begun = useRef(false);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another place moves the focus, and a new list of kinds does not.
  useEffect(() => {
    visited(path);
    const kind = found.find((item) => item.path === first);
    document.title = `${kind?.title ?? t(first.charAt(0).toUpperCase() + first.slice(1))} – nova_lite`;
    if (!begun.current) {
      begun.current = true;
      return;
    }
    main.current?.focus({ preventScroll: true });
    return scrollBack();
  }, [where]);
  let view: VNode;
  const kind = found.find((item) => item.path === first);
  if (first === "servers")
    view = second === "new" ? <Create /> : second ? <Server key={second} id={second} tab={third} /> : <Servers />;
  else if (first === "overview") view = <Overview />;
  else if (first === "quotas") view = <Quotas />;
  else if (first === "usage" && sees("usage")) view = <Usage />;
  else if (first === "alerts" && sees("alerts")) view = <Alerts />;
  else if (first === "api") view = <Explorer id={second} />;
  else if (first === "actions" && sees("actions")) view = <Actions />;
  else if (first === "audit" && sees("audit")) view = <Audit />;
  else if (kind) view = second ? <Details key={second} kind={kind} id={second} /> : <Listing kind={kind} />;
  else
    view = (
      <>
        <Head title={t("Not found")} />
        <Empty>
          <p>{t("This page does not exist, or this project's roles do not show it.")}</p>
          <a class="button" href={link("servers")}>
            {t("Servers")}
          </a>
        </Empty>
      </>
    );
  return (
    <main ref={main} id="main" tabIndex={-1}>
      <Guard place={where} key={where}>
        {view}
      </Guard>
    </main>
  );
}

function Shell({ leave, changed }: { leave: () => void; changed: () => void }): VNode {
  // biome-ignore lint/correctness/useExhaustiveDependencies: rights and words of the kinds come from the session and the language.
  const found = useMemo(kinds, [shared.session, language()]);
  const menu = groups(found);
  const { path } = usePlace();
  const [open, setOpen] = useState(false);
  const [search, setSearch] = useState(false);
  const [doing, setDoing] = useState<Doing | null>(null);
  const views = menu.flatMap(([group, items]) =>
    items.filter((item) => item.show).map((item) => ({ label: item.title, note: group, href: link(item.path) })),
  );
  const { lost, late } = useConnection();
  const current = path[0] ?? "overview";
  // biome-ignore lint/correctness/useExhaustiveDependencies: another place closes the menu.
  useEffect(() => setOpen(false), [path.join("/")]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: each session has a stream of its own.
  useEffect(follow, [shared.session]);
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      const typing = (event.target as HTMLElement).closest?.("input, textarea, select, [contenteditable]");
      const wanted = (event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !typing);
      if (!wanted || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      setSearch(true);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return (
    <div class={`shell ${open ? "open" : ""}`}>
      {/* biome-ignore lint/a11y/useValidAnchor: it is a link within the page, whose address names the view. */}
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("main")?.focus();
        }}
      >
        {t("Skip to the content")}
      </a>
      <header class="top">
        <button
          type="button"
          class="plain burger"
          aria-label={t("Menu")}
          aria-expanded={open}
          onClick={() => setOpen(!open)}
        >
          <Icon name="menu" />
        </button>
        <a class="brand" href={link("overview")}>
          <img src="icon.svg" alt="" width={22} height={22} /> nova_lite
        </a>
        <button type="button" class="find" onClick={() => setSearch(true)}>
          <Icon name="search" />
          <span>{t("Find or do anything")}</span>
          <kbd>/</kbd>
        </button>
        <Account leave={leave} changed={changed} />
      </header>
      <nav class="side" aria-label={t("Main menu")}>
        {menu.map(
          ([name, items]) =>
            items.some((item) => item.show) && (
              <section key={name}>
                {name && <h2>{name}</h2>}
                <ul>
                  {items
                    .filter((item) => item.show)
                    .map((item) => (
                      <li key={item.path}>
                        <a href={link(item.path)} aria-current={current === item.path ? "page" : undefined}>
                          <Icon name={item.path} />
                          {item.title}
                          {item.path === "alerts" && <AlertCount />}
                        </a>
                      </li>
                    ))}
                </ul>
              </section>
            ),
        )}
      </nav>
      {/* biome-ignore lint/a11y: a click beside the menu closes it; keys have its button. */}
      {open && <div class="veil" onClick={() => setOpen(false)} />}
      <div class="content">
        {lost && (
          <div class="lost" role="alert">
            {t("The connection to the cloud is lost. What you have entered stays; the page tries again.")}
          </div>
        )}
        {late && (
          <div class="lost" role="status">
            {t("No answer for 5 seconds from the API")}: {late}
          </div>
        )}
        <Notices />
        <View found={found} />
      </div>
      {search && <Finder found={found} views={views} leave={leave} close={() => setSearch(false)} choose={setDoing} />}
      {doing && (
        <ActionDialog
          key={doing}
          action={doing.action}
          rows={[doing.row]}
          nameOf={() => doing.name}
          close={() => setDoing(null)}
          done={() => undefined}
        />
      )}
    </div>
  );
}

function Account({ leave, changed }: { leave: () => void; changed: () => void }): VNode {
  const session = shared.session!;
  const live = useLive();
  const { data } = useData<Named[]>(
    async () => (await call("identity", "GET", "/auth/projects")).projects,
    ["projects", session.user.id],
  );
  const [theme, setTheme] = useState(remembered("theme"));
  const [changing, setChanging] = useState(false);
  const [securing, setSecuring] = useState(false);
  const paint = (next: string) => {
    setTheme(next);
    remember("theme", next);
    applyTheme();
  };
  return (
    <div class="account">
      <select
        aria-label={t("Project")}
        value={session.project?.id ?? ""}
        onChange={(event) => location.assign(inProject(event.currentTarget.value, place().path[0] ?? "overview"))}
      >
        {(data ?? [session.project!]).map((project) => (
          <option key={project.id} value={project.id}>
            {project.name}
          </option>
        ))}
      </select>
      <Drop label={session.user.name}>
        <p>
          <b>{session.user.name}</b>
          <br />
          <small>{session.roles.join(", ")}</small>
        </p>
        <p class="live" data-live={live}>
          <small>
            {live ? t("Changes are shown as they happen.") : t("The page asks for changes every few seconds.")}
          </small>
        </p>
        <label>
          {t("Appearance")}
          <select value={theme} onChange={(event) => paint(event.currentTarget.value)}>
            <option value="">{t("As the system")}</option>
            <option value="light">{t("Light")}</option>
            <option value="dark">{t("Dark")}</option>
          </select>
        </label>
        <label>
          {t("Language")}
          <select
            value={language()}
            onChange={(event) => {
              void setLanguage(event.currentTarget.value).then(changed, noLanguage);
            }}
          >
            {Object.entries(LANGUAGES).map(([code, name]) => (
              <option key={code} value={code} lang={code}>
                {name}
              </option>
            ))}
          </select>
        </label>
        {allowed(ownPassword()) && (
          <button type="button" onClick={() => setChanging(true)}>
            {t("Change the password")}
          </button>
        )}
        {checksCodes() && may("identity:create_credential", "identity:list_credentials") && (
          <button type="button" onClick={() => setSecuring(true)}>
            {t("Second factor")}
          </button>
        )}
        <button type="button" onClick={leave}>
          {t("Log out")}
        </button>
      </Drop>
      {securing && <SecondFactor close={() => setSecuring(false)} />}
      {changing && (
        <ActionDialog
          action={ownPassword()}
          rows={[{}]}
          nameOf={() => session.user.name}
          close={() => setChanging(false)}
          done={() => undefined}
        />
      )}
    </div>
  );
}

const noLanguage = (error: Error): void =>
  notify({ words: t("The language could not be loaded. The page stays as it is."), error });

function applyTheme(): void {
  const theme = remembered("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

// --- log-in

const OUTCOMES = (): Record<string, string> => ({
  refused: t(
    "The identity provider, or this cloud, has refused the log-in. An administrator finds the reason in the API's log.",
  ),
  late: t("The log-in took too long, or began in another browser. Please try again."),
  away: t("The identity provider does not answer. Please try again."),
});

function Login({ done, again }: { done: (body: TokenReply) => Promise<void>; again?: string }): VNode {
  const [kind, setKind] = useState<"password" | "credential">("password");
  const [name, setName] = useState(again ?? "");
  const [password, setPassword] = useState("");
  const [domain, setDomain] = useState("Default");
  const [code, setCode] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const [providers, setProviders] = useState<Named[]>([]);
  const [elsewhere, setElsewhere] = useState(false);
  useEffect(
    () =>
      void send<{ providers: Named[] }>("GET", "login", undefined, { quiet: true }).then(
        (found) => setProviders(found.providers),
        () => undefined,
      ),
    [],
  );
  /** The API says of a wrong password no more than that it is none. */
  const refused = (problem: Error): Error =>
    problem instanceof ApiError && problem.status === 401 && /requires authentication/.test(problem.message)
      ? new Error(kind === "password" ? t("Wrong user, password or domain.") : t("Wrong id or secret."))
      : problem;
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    const user = { name, domain: { name: domain } };
    const totp = code.trim() ? { totp: { user: { ...user, passcode: code.trim() } } } : {};
    const identity =
      kind === "password"
        ? { methods: ["password", ...Object.keys(totp)], password: { user: { ...user, password } }, ...totp }
        : { methods: ["application_credential"], application_credential: { id: name, secret: password } };
    try {
      const scoped = again ? { scope: { project: { id: addressed() } } } : {};
      await done(await send<TokenReply>("POST", "session", { auth: { identity, ...scoped } }, { quiet: true }));
    } catch (problem) {
      setError(refused(problem as Error));
      setPassword("");
    }
    setBusy(false);
  };
  const begin = async (provider: string) => {
    setError(null);
    try {
      const { url } = await send<{ url: string }>("POST", "login", { provider }, { quiet: true });
      // Over a form, the provider gets a tab of its own, so that nothing is lost.
      if (!again) location.assign(url);
      else {
        window.open(url, "_blank", "noopener");
        setElsewhere(true);
      }
    } catch (problem) {
      setError(problem as Error);
    }
  };
  const goOn = async () => {
    setError(null);
    try {
      const body = await send<TokenReply | null>("GET", "session", undefined, { quiet: true });
      if (!body) throw new Error("Nobody, or another user, has logged in.");
      await done(body);
    } catch (problem) {
      setError(problem as Error);
    }
  };
  const outcome = !again ? OUTCOMES()[place().query.get("login") ?? ""] : undefined;
  return (
    <form class="login" onSubmit={submit}>
      {outcome && (
        <div class="failure" role="alert">
          <strong>{outcome}</strong>
        </div>
      )}
      {!again && (
        <div class="tabs" role="group" aria-label={t("Way to log in")}>
          <button
            type="button"
            aria-pressed={kind === "password"}
            onClick={() => {
              setKind("password");
              setError(null);
            }}
          >
            {t("Password")}
          </button>
          <button
            type="button"
            aria-pressed={kind === "credential"}
            onClick={() => {
              setKind("credential");
              setError(null);
            }}
          >
            {t("Application credential")}
          </button>
        </div>
      )}
      <div class="field">
        <label for="login-name">{kind === "password" ? t("User") : t("Id of the credential")}</label>
        <input
          id="login-name"
          autocomplete="username"
          autocapitalize="off"
          spellcheck={false}
          required
          value={name}
          readOnly={!!again}
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </div>
      <div class="field">
        <label for="login-password">{kind === "password" ? t("Password") : t("Secret")}</label>
        <input
          id="login-password"
          type="password"
          autocomplete="current-password"
          required
          value={password}
          onInput={(event) => setPassword(event.currentTarget.value)}
        />
      </div>
      {kind === "password" && (
        <details>
          <summary>
            {t("Domain")}: {domain} · {t("One-time code")}
          </summary>
          <div class="field">
            <label for="login-domain">{t("Domain")}</label>
            <input
              id="login-domain"
              required
              value={domain}
              onInput={(event) => setDomain(event.currentTarget.value)}
            />
          </div>
          <div class="field">
            <label for="login-code">
              {t("One-time code")} <i>{t("optional")}</i>
            </label>
            <input
              id="login-code"
              inputMode="numeric"
              autocomplete="one-time-code"
              value={code}
              onInput={(event) => setCode(event.currentTarget.value)}
            />
            <small>{t("Only if the user's account demands it.")}</small>
          </div>
        </details>
      )}
      <Failure error={error} />
      <button type="submit" class="primary big" disabled={busy}>
        {busy ? t("Working…") : t("Log in")}
      </button>
      {providers.map((item) => (
        <button key={item.id} type="button" class="big" onClick={() => void begin(item.id)}>
          {t("Log in by")} {item.name}
        </button>
      ))}
      {elsewhere && (
        <button type="button" class="primary big" onClick={() => void goOn()}>
          {t("I have logged in")}
        </button>
      )}
    </form>
  );
}

/** Tells the other tabs of this browser that its session may be another one. They ask which. */
const tabs = new BroadcastChannel("nova_lite.session");

/** Leave nothing of the session in this tab: neither in its document, nor where the way back leads. */
function end(): void {
  forget();
  render(null, root);
  location.replace(location.pathname);
}

function App(): VNode {
  const [state, set] = useState<"waiting" | "out" | "in">("waiting");
  const [failure, setFailure] = useState<Error | null>(null);
  const [expired, setExpired] = useState<{ user: string; resolve: () => void } | null>(null);
  const [other, setOther] = useState<Session | null>(null);
  const [turn, again] = useState(0);
  // All requests that find the session expired, or another one, wait for the same decision of the user.
  const renewal = useRef<Promise<void> | null>(null);
  const decision = useRef<{ made: Promise<void>; resolve: () => void } | null>(null);
  const decided = () => {
    setOther(null);
    decision.current?.resolve();
    decision.current = null;
  };
  const take = async (body: TokenReply) => {
    try {
      await enter(body);
    } catch (error) {
      if (!(error instanceof ForeignProjectError)) throw error;
      return setFailure(error);
    }
    set("in");
    tabs.postMessage("");
  };
  const begin = async () => {
    setFailure(null);
    try {
      const body = await send<TokenReply | null>("GET", "session", undefined, { quiet: true });
      if (body) return await take(body);
    } catch (error) {
      if (!(error instanceof ApiError && [401, 404].includes(error.status))) return setFailure(error as Error);
    }
    forget();
    set("out");
  };
  /** Compare the browser's session with this tab's. */
  const look = async () => {
    if (!shared.session || renewal.current) return;
    let body: TokenReply | null = null;
    try {
      body = await send<TokenReply | null>("GET", "session", undefined, { quiet: true });
    } catch (error) {
      if ((error as ApiError).status !== 401) return decided();
    }
    if (!body) return end();
    const found = sessionOf(body);
    if (isShown(found)) return decided();
    if (found.user.id !== shared.session.user.id) forget();
    setOther(found);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: the handlers are set once, and read what they need when they are called.
  useEffect(() => {
    onExpired(() => {
      renewal.current ??= new Promise<void>((resolve) =>
        setExpired({
          user: shared.session?.user.name ?? "",
          resolve: () => {
            renewal.current = null;
            resolve();
          },
        }),
      );
      return renewal.current;
    });
    onOther(() => {
      if (renewal.current) return renewal.current;
      if (!decision.current) {
        let resolve: () => void = () => undefined;
        decision.current = {
          made: new Promise<void>((done) => {
            resolve = done;
          }),
          resolve: () => resolve(),
        };
        void look();
      }
      return decision.current.made;
    });
    tabs.onmessage = () => void look();
    void begin();
  }, []);
  if (failure)
    return (
      <div class="gate">
        <h1>nova_lite</h1>
        {failure instanceof ForeignProjectError ? (
          <>
            <Failure error={failure} />
            <a class="button" href={inProject(failure.session.project!.id)}>
              {t("Go on in")} {failure.session.project!.name}
            </a>
          </>
        ) : (
          <Failure error={failure} retry={begin} />
        )}
      </div>
    );
  if (state === "waiting")
    return (
      <div class="gate">
        <Waiting />
      </div>
    );
  if (state === "out")
    return (
      <main class="gate">
        <h1>
          <img src="icon.svg" alt="" width={34} height={34} /> nova_lite
        </h1>
        <Login done={take} />
      </main>
    );
  if (other && other.user.id !== shared.session!.user.id)
    return (
      <main class="gate">
        <h1>
          <img src="icon.svg" alt="" width={34} height={34} /> nova_lite
        </h1>
        <p role="alert">
          {t("This browser's session is now that of")} {other.user.name}.
        </p>
        <button type="button" class="primary big" onClick={end}>
          {t("Go on as")} {other.user.name}
        </button>
      </main>
    );
  const leave = async () => {
    try {
      await send("DELETE", "session", undefined, { quiet: true });
    } catch (error) {
      const { status } = error as ApiError;
      if (status === 409) return look();
      if (status !== 401) return setFailure(error as Error);
    }
    tabs.postMessage("");
    end();
  };
  const renewed = async (body: TokenReply) => {
    if (body.token.user.id !== shared.session!.user.id) throw new Error("Nobody, or another user, has logged in.");
    await enter(body);
    expired?.resolve();
    setExpired(null);
    tabs.postMessage("");
  };
  return (
    <>
      <Shell key={turn} leave={() => void leave()} changed={() => again(turn + 1)} />
      {expired && (
        <Dialog title={t("Log in again")} close={() => undefined} locked>
          <div class="body">
            <p>{t("The session has expired. Nothing that you have entered is lost.")}</p>
            <Login done={renewed} again={expired.user} />
          </div>
        </Dialog>
      )}
      {other && !expired && (
        <Elsewhere
          session={other}
          done={() => {
            tabs.postMessage("");
            decided();
          }}
        />
      )}
    </>
  );
}

/** Says that the session is in another project than this tab, and offers both ways. `done`: it is in this tab's again. */
function Elsewhere({ session, done }: { session: Session; done: () => void }): VNode {
  const [error, setError] = useState<Error | null>(null);
  const own = shared.session!.project!;
  const back = () => void scope(own.id).then(done, setError);
  return (
    <Dialog title={t("Another project")} close={() => undefined} locked>
      <div class="body">
        <p>
          {t("This browser's session is now in the project")} {session.project?.name ?? "–"}.{" "}
          {t("This tab shows the project")} {own.name}.
        </p>
        <Failure error={error} />
      </div>
      <div class="answers">
        <button
          type="button"
          onClick={() =>
            location.assign(
              session.project ? inProject(session.project.id, place().path[0] ?? "overview") : location.pathname,
            )
          }
        >
          {t("Go on in")} {session.project?.name ?? "–"}
        </button>
        <button type="button" class="primary" onClick={back}>
          {t("Switch back to")} {own.name}
        </button>
      </div>
    </Dialog>
  );
}

// A document that the browser has kept, and shows again on the way back, may be of another session.
addEventListener("pageshow", (event) => event.persisted && location.reload());
const root = document.getElementById("app")!;
applyTheme();
keepPositions();
void setLanguage(language(), false)
  .catch(noLanguage)
  .then(() => render(<App />, root));
