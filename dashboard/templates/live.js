"use strict";
(() => {
  const bar = document.getElementById("live");
  const report = document.getElementById("report");
  const nodes = (place, words) => [...place.querySelectorAll(words)];
  const fetched = async address => {
    const answer = await fetch(address, { cache: "no-store" });
    if (!answer.ok) throw new Error((await answer.text()) || `the dashboard answers ${answer.status}`);
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  };

  // The page that stands takes over what is new in another one, and keeps everything else: focus,
  // selection, scroll, what is open, and the charts, which take their data from the page's script.
  const KEPT = { DETAILS: ["open"], TR: ["hidden", "class"], TH: ["aria-sort"], BUTTON: ["hidden"], FIGURE: ["hidden"] };
  const keyOf = node => node.nodeType !== 1 ? null
    : node.id || (node.dataset.trial !== undefined && `trial ${node.cells[0].dataset.v}`)
    || (node.tagName === "DETAILS" && node.querySelector("summary")?.textContent.replace(/[\d,.]+/g, "#")) || null;
  const takeAttributes = (old, fresh) => {
    const kept = KEPT[old.tagName] ?? [];
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !kept.includes(name)) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (!kept.includes(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
  };
  const take = (old, fresh) => {
    if (old.nodeType !== 1) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.id === "opened") return; // the details of a trial, which the page's script fills
    if (!old.classList.contains("plot")) takeAttributes(old, fresh);
    else old.setAttribute("aria-label", fresh.getAttribute("aria-label") ?? "");
    if (old.tagName === "INPUT" || old.classList.contains("plot") || old.id === "shown") return;
    takeChildren(old, fresh);
  };
  const takeChildren = (old, fresh) => {
    const ordered = old.tagName === "TBODY" && old.closest("table").querySelector("th[aria-sort]"); // by the reader
    const known = new Map([...old.childNodes].map(node => [keyOf(node), node]).filter(([key]) => key));
    let next = old.firstChild;
    for (const node of [...fresh.childNodes]) {
      const key = keyOf(node);
      let same = key ? known.get(key) : next;
      if (same && (same.nodeName !== node.nodeName || (!key && keyOf(same)))) same = null;
      if (!same) {
        old.insertBefore(document.importNode(node, true), next);
        continue;
      }
      if (same === next) next = next.nextSibling;
      else if (!ordered) old.insertBefore(same, next);
      take(same, node);
    }
    const wanted = new Set([...fresh.childNodes].map(keyOf));
    for (const node of [...old.childNodes]) if (keyOf(node) && !wanted.has(keyOf(node))) node.remove();
    while (next && !ordered) {
      const after = next.nextSibling;
      if (!keyOf(next)) next.remove();
      next = after;
    }
  };

  const query = words => matchMedia(words);
  const load = address => new Promise((done, fail) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = done;
    script.onerror = () => fail(new Error("The charts cannot be loaded; reload the page."));
    document.head.append(script);
  });
  // Words come first: the library of the charts is large.
  const library = report ? Promise.all([load(report.dataset.library), load(report.dataset.drawing)]) : null;
  library?.catch(() => {});
  let standing = false;
  const swap = async () => {
    const page = await fetched(report.dataset.address);
    const style = nodes(page, "style").map(style => style.textContent).join("\n");
    const sheet = document.getElementById("report-style");
    if (sheet.textContent !== style) sheet.textContent = style;
    for (const script of nodes(page, "script[src]")) script.remove();
    document.title = page.title;
    const focused = document.activeElement;
    const fresh = page.querySelector("main");
    fresh.append(...nodes(page, "script[type='application/json']"));
    if (standing) takeChildren(report, fresh);
    else report.replaceChildren(...fresh.childNodes);
    if (document.getElementById("charts") === null) return;
    await library;
    if (standing) document.dispatchEvent(new Event("report-changed"));
    else drawReport(query);
    standing = true;
    // What is moved loses the focus.
    if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
  };
  const list = async () => {
    const page = await fetched(location.href);
    for (const id of ["runs", "live"]) {
      document.getElementById(id).replaceChildren(...page.getElementById(id).childNodes);
    }
  };

  // One at a time; what comes meanwhile is shown by the next.
  let working = false;
  let waiting = false;
  const update = async () => {
    waiting = true;
    if (working) return;
    working = true;
    if (report) report.ariaBusy = "true";
    while (waiting) {
      waiting = false;
      try {
        await (report ? swap() : list());
      } catch (error) {
        document.getElementById("live-note").textContent = String(error.message);
      }
    }
    working = false;
    if (report) report.ariaBusy = "false";
  };

  // A browser has six connections to a server: pages that are not looked at give theirs back.
  let source = null;
  const listen = () => {
    source = new EventSource(bar.dataset.events);
    source.addEventListener("open", () => { document.getElementById("live-note").textContent = ""; });
    source.addEventListener("error", () => {
      for (const badge of nodes(document, ".live-state")) badge.dataset.state = "unknown";
      // A server that is gone is asked again. One that refuses is another dashboard, with another token.
      document.getElementById("live-note").textContent = source.readyState === EventSource.CLOSED
        ? "The dashboard was started again: open the address that it has printed now. This is the last state of before."
        : "The dashboard does not answer; this is its last state.";
    });
    source.addEventListener("changed", event => {
      const { state, sentence, page } = JSON.parse(event.data);
      if (report) {
        const badge = document.getElementById("live-state");
        badge.textContent = state;
        badge.dataset.state = state;
        document.getElementById("live-sentence").textContent = sentence;
      }
      if (page) update();
    });
  };
  document.addEventListener("visibilitychange", () => {
    source?.close();
    if (!document.hidden) listen();
  });
  if (!document.hidden) listen();
})();
