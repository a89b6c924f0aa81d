// One box for any name or id, for each view, and for what can be done.
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { call, list } from "./api";
import { doings, type Hit, lately, queries, ranked, type Thing } from "./finder";
import { idOf, type Kind, nameOf } from "./listing";
import { t } from "./messages";
import { addressesOf, serverActions } from "./servers";
import { inProject, link, may, shared } from "./state";
import { type Action, Dialog, usable } from "./ui";

/** An action that a user has chosen, and what it is on. */
export interface Doing {
  action: Action<object>;
  row: object;
  name: string;
}

/** Milliseconds without a key after which the API is asked. */
const PAUSE = 250;
/** Hits that are shown. */
const SHOWN = 12;

async function foundServers(query: string): Promise<Thing[]> {
  const everyone = may("os_compute_api:servers:detail:get_all_tenants") ? "&all_tenants=1" : "";
  const actions = serverActions() as Action<object>[];
  try {
    const found = await list("compute", `/servers/detail?limit=1000${everyone}${query}`, "servers");
    return found.map((row) => ({
      label: row.name,
      note: `${t("server")} · ${row.id} · ${addressesOf(row).join(" ")}`,
      href: link("servers", row.id),
      row,
      actions,
    }));
  } catch {
    return []; // The other kinds of things are found nevertheless.
  }
}

async function thingsOf(kind: Kind): Promise<Thing[]> {
  try {
    return (await kind.load(true)).map((row) => {
      const id = idOf(kind, row);
      const place = { href: link(kind.path, id), note: `${kind.one} · ${id}` };
      return { ...place, label: nameOf(kind, row) || id, row, actions: kind.actions };
    });
  } catch {
    return []; // as above
  }
}

/** The user's other projects. */
async function otherProjects(): Promise<Hit[]> {
  try {
    const { projects } = await call("identity", "GET", "/auth/projects");
    return projects
      .filter((project) => project.id !== shared.session!.project?.id)
      .map((project) => ({
        label: `${t("Switch to project")} ${project.name}`,
        note: t("project"),
        href: `project ${project.id}`,
        run: () => location.assign(inProject(project.id, "overview")),
      }));
  } catch {
    return []; // as above
  }
}

export function Finder({
  found,
  views,
  leave,
  close,
  choose,
}: {
  found: Kind[];
  views: Hit[];
  leave: () => void;
  close: () => void;
  choose: (doing: Doing) => void;
}): VNode {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [things, setThings] = useState<Thing[] | null>(null);
  const [projects, setProjects] = useState<Hit[]>([]);
  const [more, setMore] = useState<Thing[]>([]);
  const [isPart, setIsPart] = useState(false);
  const options = useRef<HTMLUListElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: what can be found is loaded once, when the dialog opens.
  useEffect(() => {
    let live = true;
    const servers = foundServers("").then((hits) => {
      if (live) setIsPart(hits.length === 1000);
      return hits;
    });
    const others = found.filter((kind) => kind.path !== "services").map(thingsOf);
    void Promise.all([servers, ...others]).then((all) => live && setThings(all.flat()));
    void otherProjects().then((hits) => live && setProjects(hits));
    return () => {
      live = false;
    };
  }, []);
  // Servers beyond those that are loaded: the API looks for them, once the user has stopped to write.
  useEffect(() => {
    if (!isPart || text.trim().length < 2) return setMore([]);
    let live = true;
    const timer = setTimeout(
      () => void Promise.all(queries(text).map(foundServers)).then((found) => live && setMore(found.flat())),
      PAUSE,
    );
    return () => {
      live = false;
      clearTimeout(timer);
    };
  }, [text, isPart]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another option is chosen.
  useEffect(() => options.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [at]);
  const places = may("os_compute_api:servers:create")
    ? [...views, { label: t("Create a server"), note: t("Compute"), href: link("servers", "new") }]
    : views;
  const begin = (action: Action<object>, row: object, name: string) =>
    action.go ? action.go(row) : choose({ action, row, name });
  const creates: Hit[] = found.flatMap((kind) =>
    usable(kind.create ?? [], {}).map((action) => ({
      label: action.label,
      note: kind.title,
      href: `${action.name} ${link(kind.path)}`,
      run: () => begin(action, {}, ""),
    })),
  );
  const own: Hit[] = [{ label: t("Log out"), note: shared.session!.user.name, href: "leave", run: leave }];
  const all = [...(things ?? []), ...more];
  const [named, vague] = doings(all, text, (action, thing) => begin(action, thing.row, thing.label));
  const hits = (
    text.trim()
      ? [...ranked([...places, ...all, ...named, ...creates, ...projects, ...own], text), ...ranked(vague, text)]
      : [...lately(all).map((hit) => ({ ...hit, note: `${t("recent")} · ${hit.note}` })), ...places]
  ).slice(0, SHOWN);
  const go = (hit: Hit | undefined) => {
    if (!hit) return;
    close();
    if (hit.run) hit.run();
    else location.hash = hit.href;
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(hits.length - 1, at + 1));
    else if (event.key === "ArrowUp") setAt(Math.max(0, at - 1));
    else if (event.key === "Enter") go(hits[at]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title={t("Find")} close={close}>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the combobox in it has the focus. */}
      <div class="body finder" onKeyDown={key}>
        <input
          type="text"
          role="combobox"
          aria-autocomplete="list"
          aria-expanded="true"
          aria-controls="hits"
          aria-activedescendant={hits[at] ? `hit-${at}` : undefined}
          aria-label={t("Find any name or id")}
          placeholder={t("A name, an id, or what to do: stop web-1")}
          value={text}
          onInput={(event) => {
            setText(event.currentTarget.value);
            setAt(0);
          }}
          autofocus
        />
        {/* biome-ignore lint/a11y/noNoninteractiveElementToInteractiveRole: the list of a combobox. */}
        <ul id="hits" role="listbox" aria-label={t("Results")} ref={options}>
          {hits.map((hit, index) => (
            // biome-ignore-start lint/a11y: the focus stays in the combobox, whose keys choose an option.
            <li key={hit.href} id={`hit-${index}`} role="option" aria-selected={index === at} onClick={() => go(hit)}>
              <b>{hit.label}</b> <small>{hit.note}</small>
            </li>
            // biome-ignore-end lint/a11y: as above
          ))}
        </ul>
        {hits.length === 0 && <p role="status">{things ? t("Nothing has this name or id.") : t("Loading…")}</p>}
        <p class="keys">
          <kbd>↑</kbd> <kbd>↓</kbd> {t("choose")} <kbd>Enter</kbd> {t("go or do")} <kbd>Esc</kbd> {t("close")}
        </p>
      </div>
    </Dialog>
  );
}
