// The screen of a guest, by noVNC. The page loads this file when a user opens a screen.
import RFB from "@novnc/novnc";
import type { Console, Ended } from "./consoles";

export function open(target: HTMLElement, url: string, ready: () => void, ended: Ended): Console {
  const screen = new RFB(target, url);
  screen.scaleViewport = true;
  screen.background = "transparent";
  screen.addEventListener("connect", () => {
    screen.focus();
    ready();
  });
  screen.addEventListener("disconnect", (event) => ended((event as CustomEvent<{ clean: boolean }>).detail.clean));
  return {
    close: () => screen.disconnect(),
    focus: () => screen.focus(),
    reset: () => screen.sendCtrlAltDel(),
    paste: (text) => screen.clipboardPasteFrom(text),
  };
}

/** Milliseconds that the first picture has after the connection. */
const FIRST = 1000;

/** A picture of the screen, as the URL of an image. The guest gets no key of it, and other viewers stay. */
export function picture(target: HTMLElement, url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const screen = new RFB(target, url);
    screen.viewOnly = true;
    screen.addEventListener("connect", () =>
      setTimeout(() => {
        resolve(screen.toDataURL("image/png"));
        screen.disconnect();
      }, FIRST),
    );
    screen.addEventListener("disconnect", () =>
      reject(new Error("The console proxy refuses this page, or does not answer. Its log has the reason.")),
    );
  });
}
