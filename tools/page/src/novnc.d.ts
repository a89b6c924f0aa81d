// The part of noVNC that the page uses. The package has no types of its own.
declare module "@novnc/novnc" {
  export default class RFB extends EventTarget {
    constructor(target: HTMLElement, url: string, options?: { shared?: boolean });
    scaleViewport: boolean;
    viewOnly: boolean;
    toDataURL(type: string): string;
    background: string;
    disconnect(): void;
    focus(): void;
    sendCtrlAltDel(): void;
    clipboardPasteFrom(text: string): void;
  }
}
