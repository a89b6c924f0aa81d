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
