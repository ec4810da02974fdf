"use strict";
(() => {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const read = id => document.getElementById(id).textContent;
  // Charts are drawn on a canvas, which has no style sheet: INK stands for the colour of the text.
  const standing = new Map(); // by the id of their place
  let plot = null;
  const touch = matchMedia("(pointer: coarse)").matches;
  const COPIED = /^(data|factors|ticks|text|label|axis_label|major_label_overrides|location|x|y|left|right|top|bottom)$|color$/;
  const RANGES = /^(start|end|bounds)$/;
  const plain = value => value === null || typeof value !== "object" || (Array.isArray(value)
    ? value.every(plain) : [Object.prototype, null].includes(Object.getPrototypeOf(value)) && Object.values(value).every(plain));
  const differs = (one, other) => JSON.stringify(one) !== JSON.stringify(other);
  const finite = value => typeof value !== "number" || Number.isFinite(value);
  const parts = root => [...root.references()].filter(model => !/Tool|Toolbar|Selection|Canvas|Notifications/.test(model.type));
  // New data go into the figure that stands: it keeps its zoom, and nothing is drawn anew. False if
  // it has other parts.
  const renew = (root, item) => {
    const chosen = item.target_id === "plot-trial"; // the reader has chosen its data
    const fresh = root.document.constructor.from_json(item.doc).get_model_by_id(item.root_id);
    Bokeh.documents.splice(Bokeh.documents.indexOf(fresh.document), 1); // the library lists every one
    const [before, after] = [parts(root), parts(fresh)];
    if (before.length !== after.length || before.some((model, at) => model.type !== after[at].type)) return false;
    before.forEach((model, at) => {
      const fixed = /^(Range1d|FactorRange)$/.test(model.type);
      const changes = Object.entries(after[at].attributes).filter(([name, value]) => (name === "data" && !chosen)
        || ((COPIED.test(name) || (fixed && !chosen && RANGES.test(name))) && plain(value) && finite(value)
          && differs(value, model.attributes[name])));
      if (changes.length) model.setv(Object.fromEntries(changes));
    });
    return true;
  };
  // What a view has asked of the window it never gives back: the library keeps a list of both.
  const drop = id => {
    const views = standing.get(id);
    standing.delete(id);
    const documents = new Set(views?.roots?.map(view => view.model.document));
    for (const view of views?.roots ?? []) view.remove();
    for (let at = Bokeh.documents.length - 1; at >= 0; at -= 1) {
      if (documents.has(Bokeh.documents[at])) Bokeh.documents.splice(at, 1);
    }
  };
  const layers = place => [...place.querySelectorAll("*")].flatMap(part => [
    ...(part.shadowRoot ? layers(part.shadowRoot) : []), ...(part.tabIndex === 0 ? [part] : [])]);
  const closed = new Set(); // what the reader had closed before printing
  // A canvas keeps the width of the screen: paper gets its picture, which fits.
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details:not([open])")) {
      closed.add(part);
      part.open = true;
    }
    for (const [id, views] of standing) {
      const picture = document.createElement("img");
      picture.className = "printed";
      picture.alt = document.getElementById(id).getAttribute("aria-label") ?? "";
      picture.src = views.roots[0].export("png", true).canvas.toDataURL();
      picture.style.width = `${document.getElementById(id).clientWidth}px`;
      document.getElementById(id).append(picture);
    }
  });
  addEventListener("afterprint", () => {
    for (const picture of document.querySelectorAll(".printed")) picture.remove();
    for (const part of closed) part.open = false;
    closed.clear();
  });
  const draw = () => {
    root.toggleAttribute("data-dark", scheme.matches);
    const ink = getComputedStyle(root).getPropertyValue("--ink").trim();
    const items = document.getElementById("charts") ? JSON.parse(read("charts").replaceAll(INK, ink)) : [];
    const wanted = new Set(items.map(item => item.target_id));
    for (const id of [...standing.keys()]) if (!wanted.has(id) || !document.getElementById(id)?.hasChildNodes()) drop(id);
    return items.map(async item => {
      const place = document.getElementById(item.target_id);
      if (!place) return;
      const model = standing.get(item.target_id)?.roots[0].model;
      if (model && renew(model, item)) return;
      drop(item.target_id);
      place.replaceChildren();
      const views = await Bokeh.embed.embed_item(item);
      standing.set(item.target_id, views);
      for (const model of views.get_by_id ? [views.get_by_id(item.root_id).model] : []) {
        // A finger that moves over a chart scrolls the page.
        if (touch) model.toolbar.active_drag = null;
        if (item.target_id === "plot-trial") plot = model;
      }
      place.style.minHeight = "";
      for (const layer of layers(place)) layer.tabIndex = -1; // a picture is no place to stop at
    });
  };
  Bokeh.logger.set_level("warn");
  const drawn = () => Promise.all(draw()).then(() => { root.dataset.drawn = "yes"; });
  drawn();
  scheme.addEventListener("change", drawn);

  // A live page brings new rows and new data: what the reader has sorted, filtered and opened stays.
  let table = null;
  let rows = [];
  let trials = [];
  const PAGE = 25;
  let most = PAGE;
  let shownTrial = null;
  const filter = () => document.getElementById("filter");
  const body = () => table.tBodies[0];

  const show = () => {
    const words = filter().value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [...body().rows].filter(row => words.every(word => row.textContent.toLowerCase().includes(word)));
    const shown = new Set(found.slice(0, most));
    for (const row of rows) if (row.hidden === shown.has(row)) row.hidden = !row.hidden;
    document.getElementById("more").hidden = found.length <= most;
    const some = found.length === rows.length ? "" : ` of ${rows.length}`;
    const text = `${found.length}${some} trial${rows.length === 1 ? "" : "s"}${found.length > most ? `, ${most} of them shown` : ""}`;
    if (document.getElementById("shown").textContent !== text) document.getElementById("shown").textContent = text;
  };

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const sort = (column, order) => {
    const sign = order === "ascending" ? 1 : -1;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    rows.sort((a, b) => sign * compare(value(a, column), value(b, column)));
    if (rows.some((row, at) => body().rows[at] !== row)) body().append(...rows);
  };
  const sortBy = head => {
    const column = head.cellIndex;
    const numbers = rows[0].cells[column].dataset.v !== undefined;
    // The first click on a number puts the largest on top.
    const first = numbers && column > 0 ? "descending" : "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? second : first;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    sort(column, order);
    show();
  };

  const fill = trial => {
    const panel = document.getElementById("opened");
    for (const row of rows) row.classList.toggle("open", trials[Number(row.dataset.trial)]?.id === trial.id);
    panel.hidden = false;
    panel.querySelector("h3").textContent = `Trial ${trial.id}`;
    const list = panel.querySelector("dl");
    if (list.dataset.facts !== JSON.stringify(trial.facts)) {
      list.dataset.facts = JSON.stringify(trial.facts);
      list.replaceChildren(...trial.facts.map(([name, text]) => {
        const pair = document.createElement("div");
        const [term, fact] = [document.createElement("dt"), document.createElement("dd")];
        term.textContent = name;
        fact.textContent = text;
        pair.append(term, fact);
        return pair;
      }));
    }
    const figure = document.getElementById("figure-trial");
    if (figure) figure.hidden = !trial.epochs.length;
    if (plot) {
      const training = trial.training.map(accuracy => accuracy ?? NaN);
      plot.renderers[0].data_source.data = { epoch: trial.epochs, accuracy: trial.accuracy, training };
      plot.x_range.setv({ start: 0, end: Math.max(1, ...trial.epochs) + 0.5 });
    }
  };
  const open = row => {
    const trial = trials[Number(row.dataset.trial)];
    shownTrial = trial.id;
    fill(trial);
    const panel = document.getElementById("opened");
    panel.querySelector("h3").focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
  };
  const attach = () => {
    filter().addEventListener("input", () => { most = PAGE; show(); });
    document.getElementById("more").addEventListener("click", () => { most += 4 * PAGE; show(); });
    table.tHead.addEventListener("click", event => {
      const head = event.target.closest("th");
      if (head) sortBy(head);
    });
    body().addEventListener("click", event => {
      const row = event.target.closest("tr");
      if (row) open(row);
    });
  };
  const look = () => {
    const found = document.getElementById("trial-table");
    if (!found) return;
    const isNew = found !== table;
    table = found;
    rows = [...body().rows];
    trials = JSON.parse(read("trial-data"));
    if (isNew) attach();
    const sorted = table.querySelector("th[aria-sort]");
    if (sorted) sort(sorted.cellIndex, sorted.getAttribute("aria-sort"));
    show();
    const trial = trials.find(item => item.id === shownTrial);
    if (trial) fill(trial);
  };
  look();
  document.addEventListener("report-changed", () => { look(); drawn(); });
})();
