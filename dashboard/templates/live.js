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

  // What a reader has done to the page, and a new one would forget.
  const nameOf = details => details.querySelector("summary").textContent.replace(/[\d,.]+/g, "#");
  const topOf = element => element.getBoundingClientRect().top;
  const remember = () => {
    const heading = nodes(report, "h2").filter(heading => topOf(heading) < innerHeight / 2).at(-1);
    const sorted = report.querySelector("#trial-table th[aria-sort]");
    return {
      scroll: scrollY,
      heading: heading?.textContent,
      top: heading && topOf(heading),
      open: new Map(nodes(report, "details").map(details => [nameOf(details), details.open])),
      filter: report.querySelector("#filter")?.value,
      writing: document.activeElement?.id === "filter",
      rows: nodes(report, "#trial-table tbody tr:not([hidden])").length,
      column: sorted?.cellIndex,
      order: sorted?.getAttribute("aria-sort"),
      trial: report.querySelector("#trial-table tr.open td")?.dataset.v,
    };
  };
  // What is above may have grown: the last heading above the middle of the window stays in its place.
  const scrollBack = kept => {
    const heading = kept.scroll > 0 && nodes(report, "h2").find(heading => heading.textContent === kept.heading);
    if (heading) scrollBy(0, topOf(heading) - kept.top);
    else scrollTo(0, kept.scroll);
  };
  const openTrial = kept => {
    const cell = kept.trial && report.querySelector(`#trial-table tbody td:first-child[data-v="${CSS.escape(kept.trial)}"]`);
    if (cell) cell.click();
    if (kept.writing) report.querySelector("#filter")?.focus({ preventScroll: true });
    scrollBack(kept);
  };
  const restore = kept => {
    for (const details of nodes(report, "details")) details.open = kept.open.get(nameOf(details)) ?? details.open;
    const filter = report.querySelector("#filter");
    if (!filter) return;
    const head = kept.column === undefined ? null : report.querySelectorAll("#trial-table th")[kept.column];
    for (let click = 0; head && click < 2 && head.getAttribute("aria-sort") !== kept.order; click += 1) head.click();
    if (kept.filter) {
      filter.value = kept.filter;
      filter.dispatchEvent(new Event("input"));
    }
    const more = report.querySelector("#more");
    const shown = () => nodes(report, "#trial-table tbody tr:not([hidden])").length;
    while (!more.hidden && shown() < kept.rows) more.click();
  };

  // The colours of charts are drawn again with the page; only one of them may listen.
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const query = words => ({ matches: matchMedia(words).matches, addEventListener: () => {} });
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
  const drawn = () => new Promise(done => {
    let looks = 500; // a chart that fails must not end all updates
    const look = () => {
      looks -= 1;
      if (document.documentElement.dataset.drawn === "yes" || looks === 0) done();
      else setTimeout(look, 20);
    };
    look();
  });
  const swap = async () => {
    const page = await fetched(report.dataset.address);
    const kept = remember();
    report.style.minHeight = `${report.offsetHeight}px`;
    // Views of charts that are no longer shown would stay in memory.
    for (const charts of window.Bokeh ? Bokeh.documents.splice(0) : []) charts.clear();
    document.getElementById("report-style").textContent = nodes(page, "style").map(style => style.textContent).join("\n");
    for (const script of nodes(page, "script[src]")) script.remove();
    report.replaceChildren(...page.body.childNodes);
    document.title = page.title;
    delete document.documentElement.dataset.drawn;
    const charts = document.getElementById("charts") !== null;
    restore(kept);
    scrollBack(kept);
    if (charts) {
      await library;
      drawReport(query);
      restore(kept);
      openTrial(kept);
      // The chart of a trial can be filled only now.
      await drawn();
      if (kept.trial) openTrial(kept);
    }
    report.style.minHeight = "";
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
  scheme.addEventListener("change", () => { if (report) update(); });

  // A browser has six connections to a server: pages that are not looked at give theirs back.
  let source = null;
  const listen = () => {
    source = new EventSource(bar.dataset.events);
    source.addEventListener("open", () => { document.getElementById("live-note").textContent = ""; });
    source.addEventListener("error", () => {
      document.getElementById("live-note").textContent = "The dashboard does not answer; this is its last state.";
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
