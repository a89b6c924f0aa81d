// Screen and serial port of a guest in the page. Their programs are loaded when a user opens the first one.
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, call } from "./api";
import type { Body, Server } from "./compute.types";
import { t } from "./messages";
import { shared } from "./state";
import { Failure } from "./ui";

/** An open console. */
export interface Console {
  close: () => void;
  focus: () => void;
  reset?: () => void;
  paste: (text: string) => void;
}
/** Is called at the end. `clean`: it was open, and nothing failed. */
export type Ended = (clean: boolean) => void;
type Program = {
  picture?: (target: HTMLElement, url: string) => Promise<string>;
  open: (target: HTMLElement, url: string, ready: () => void, ended: Ended) => Console;
};
export type Kind = "screen" | "serial";

const BODIES: Record<Kind, Body<`/servers/${string}/remote-consoles`, "POST">["remote_console"]> = {
  screen: { protocol: "vnc", type: "novnc" },
  serial: { protocol: "serial", type: "serial" },
};
const FILES: Record<Kind, string> = { screen: "./screen.js", serial: "./terminal.js" };
const load = (kind: Kind): Promise<Program> => import(FILES[kind]) as Promise<Program>;

/** Ask the API for a console. It opens once, and within minutes. */
export async function consoleUrl(server: string, kind: Kind): Promise<string> {
  const found = await call("compute", "POST", `/servers/${server}/remote-consoles`, { remote_console: BODIES[kind] });
  const url = found.remote_console.url;
  if (!/^(https?|wss?):\/\//.test(url))
    throw new ApiError("The API's address of the console is none that a browser opens.", 0);
  return url;
}

/** The WebSocket of a console's URL. That of a screen is a page of noVNC, which names the path of its socket. */
export function socketOf(url: string): string {
  const parts = new URL(url);
  if (parts.protocol.startsWith("ws")) return parts.href;
  const path = parts.searchParams.get("path") ?? "websockify";
  return `${parts.protocol === "https:" ? "wss" : "ws"}://${parts.host}/${path.replace(/^\//, "")}`;
}

/** Whether the page's content security policy lets it reach the console. */
export function isReached(url: string): boolean {
  const socket = new URL(socketOf(url));
  return shared.consoles.has(socket.origin) && (location.protocol !== "https:" || socket.protocol === "wss:");
}

function styles(): void {
  if (document.querySelector("link[href='terminal.css']")) return;
  const sheet = document.createElement("link");
  sheet.rel = "stylesheet";
  sheet.href = "terminal.css";
  document.head.append(sheet);
}

export function ConsoleView({
  server,
  kind,
  url,
  close,
}: {
  server: Server;
  kind: Kind;
  url: string;
  close: () => void;
}): VNode {
  const target = useRef<HTMLDivElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const whole = useRef<HTMLElement>(null);
  const last = useRef<HTMLButtonElement>(null);
  const opened = useRef<Console | null>(null);
  const [state, setState] = useState<"opening" | "open" | "ended">("opening");
  const [error, setError] = useState<Error | null>(null);
  const [address, setAddress] = useState(url);
  const [text, setText] = useState<string | null>(null);
  // On a phone it begins below what is seen, and a terminal that nobody sees draws nothing.
  useEffect(() => whole.current?.scrollIntoView(), []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a view has one kind.
  useEffect(() => {
    let live = true;
    if (kind === "serial") styles();
    setState("opening");
    load(kind).then(
      (program) => {
        if (!live || !target.current) return;
        opened.current = program.open(
          target.current,
          socketOf(address),
          () => live && setState("open"),
          (clean) => {
            if (!live) return;
            setState("ended");
            if (!clean)
              setError(new Error("The console proxy refuses this page, or does not answer. Its log has the reason."));
          },
        );
      },
      () => live && setError(new Error("The cloud does not answer. Nothing that you have entered is lost: try again.")),
    );
    return () => {
      live = false;
      opened.current?.close();
      opened.current = null;
      target.current?.replaceChildren();
    };
  }, [address]);
  const again = async () => {
    setError(null);
    try {
      setAddress(await consoleUrl(server.id, kind));
    } catch (problem) {
      setError(problem as Error);
    }
  };
  const paste = (event: Event) => {
    event.preventDefault();
    opened.current?.paste(text ?? "");
    setText(null);
    opened.current?.focus();
  };
  const leave = (event: KeyboardEvent) => {
    if (event.key !== "F6" || !event.ctrlKey) return;
    event.preventDefault();
    event.stopPropagation();
    last.current?.focus();
  };
  const title = kind === "screen" ? t("Screen") : t("Serial port");
  return (
    <section class="console" ref={whole} aria-label={`${title}: ${server.name}`}>
      <div class="tools">
        <h2>{title}</h2>
        <span role="status">
          {state === "opening" ? t("Connecting…") : state === "open" ? t("Connected") : t("Ended")}
        </span>
        {state === "ended" && (
          <button type="button" class="primary" onClick={() => void again()}>
            {t("Connect again")}
          </button>
        )}
        {state === "open" && kind === "screen" && (
          <button type="button" onClick={() => opened.current?.reset?.()}>
            Ctrl-Alt-Del
          </button>
        )}
        {state === "open" && (
          <button type="button" aria-expanded={text !== null} onClick={() => setText(text === null ? "" : null)}>
            {kind === "screen" ? t("Fill the guest's clipboard") : t("Send a text")}
          </button>
        )}
        {document.fullscreenEnabled && (
          <button type="button" onClick={() => void frame.current?.requestFullscreen()}>
            {t("Full screen")}
          </button>
        )}
        <button type="button" ref={last} onClick={close}>
          {t("Close the console")}
        </button>
      </div>
      {text !== null && (
        <form class="paste" onSubmit={paste}>
          <textarea
            aria-label={t("Text")}
            rows={3}
            spellcheck={false}
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
            autofocus
          />
          <button type="submit">{t("Send")}</button>
        </form>
      )}
      <Failure error={error} />
      <p>
        <small>
          {t("The guest gets all keys, except Ctrl-F6, which leads back to the page.")}
          {kind === "serial" && ` ${t("Press Enter if it writes nothing.")}`}
        </small>
      </p>
      <div ref={frame} class={`frame ${kind}`} onKeyDownCapture={leave}>
        <div ref={target} class="target" />
      </div>
    </section>
  );
}

/** A small picture of the screen, once a user wants one. */
export function Thumbnail({ server }: { server: Server }): VNode {
  const target = useRef<HTMLDivElement>(null);
  const [image, setImage] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error | null>(null);
  const take = async () => {
    setBusy(true);
    setError(null);
    try {
      const url = await consoleUrl(server.id, "screen");
      if (!isReached(url)) throw new Error("The page may not reach this console. Open it in a tab of its own.");
      const program = await load("screen");
      if (target.current) setImage(await program.picture!(target.current, socketOf(url)));
    } catch (problem) {
      setError(problem as Error);
    }
    target.current?.replaceChildren();
    setBusy(false);
  };
  return (
    <div class="thumbnail">
      {image && <img src={image} alt={t("The guest's screen a moment ago")} />}
      <button type="button" disabled={busy} onClick={() => void take()}>
        {busy ? t("Working…") : image ? t("Take the picture again") : t("Picture of the screen")}
      </button>
      <div ref={target} class="hidden-screen" aria-hidden="true" />
      <Failure error={error} />
    </div>
  );
}
