// The serial port of a guest, by xterm.js. The page loads this file when a user opens a terminal.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import type { Console, Ended } from "./consoles";

/**
 * A document whose new elements keep to the page's content security policy. xterm.js writes style sheets into <style> and
 * `style` attributes, which the policy forbids. Here the former become sheets of the document, and the latter properties.
 */
function documentWithin(sheets: CSSStyleSheet[]): Document {
  const createElement = (name: string): HTMLElement => {
    const element = Document.prototype.createElement.call(document, name === "style" ? "template" : name); // browsers refuse even an empty <style>
    if (name === "style") {
      const sheet = new CSSStyleSheet();
      sheets.push(sheet);
      document.adoptedStyleSheets.push(sheet);
      Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text) });
    } else if (name === "span") {
      element.setAttribute = (attribute: string, value: string) => {
        if (attribute === "style") element.style.cssText = value;
        else Element.prototype.setAttribute.call(element, attribute, value);
      };
    }
    return element;
  };
  return new Proxy(document, {
    get: (target, name) => {
      if (name === "createElement") return createElement;
      const value = Reflect.get(target, name, target) as unknown;
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

export function open(target: HTMLElement, url: string, ready: () => void, ended: Ended): Console {
  const sheets: CSSStyleSheet[] = [];
  const own = documentWithin(sheets);
  const terminal = new Terminal({
    documentOverride: own,
    cursorBlink: true,
    screenReaderMode: true,
    scrollback: 5000,
    fontSize: 14,
    theme: { background: "#101418" },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  // One part of xterm.js 6.0 takes the real document in spite of `documentOverride`, while it opens.
  document.createElement = own.createElement;
  try {
    terminal.open(target);
  } finally {
    delete (document as Partial<Document>).createElement;
  }
  fit.fit();
  const watch = new ResizeObserver(() => fit.fit());
  watch.observe(target);
  const socket = new WebSocket(url);
  socket.binaryType = "arraybuffer";
  const encoder = new TextEncoder();
  let opened = false;
  socket.onopen = () => {
    opened = true;
    ready();
    terminal.focus();
  };
  socket.onmessage = (event) => terminal.write(new Uint8Array(event.data as ArrayBuffer));
  socket.onclose = () => ended(opened);
  const send = (text: string): void => {
    if (socket.readyState === WebSocket.OPEN) socket.send(encoder.encode(text));
  };
  terminal.onData(send);
  return {
    close: () => {
      watch.disconnect();
      socket.onclose = null;
      socket.close();
      terminal.dispose();
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet));
    },
    focus: () => terminal.focus(),
    paste: send,
  };
}
