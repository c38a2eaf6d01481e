/* Search runs in a web worker, which browsers refuse to start for pages opened from disk. For these pages only, the
   worker's script runs in a hidden frame instead, with the same messages. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.deliver(this, data);
      const script = frame.contentDocument.createElement("script");
      this.inside.importScripts = (...addresses) => Promise.all(addresses.map((each) => this.load(each)));
      script.src = new URL(address, location.href).href;
      script.onload = () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach((data) => this.postMessage(data));
      };
      frame.contentDocument.body.appendChild(script);
    }

    load(address) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        script.src = address;
        script.onload = done;
        script.onerror = failed;
        this.inside.document.body.appendChild(script);
      });
    }

    /* As between a page and a worker: a copy, and later. */
    deliver(target, given) {
      const data = structuredClone(given);
      setTimeout(() => {
        const event = new MessageEvent("message", { data });
        target.dispatchEvent(event);
        if (target === this && typeof this.onmessage === "function") this.onmessage(event);
      });
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.deliver(this.inside, data);
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
