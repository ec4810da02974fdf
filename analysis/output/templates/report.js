"use strict";
(() => {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const read = id => document.getElementById(id).textContent;
  // Charts are drawn on a canvas, which has no style sheet: INK stands for the colour of the text.
  let plot = null;
  const draw = () => {
    root.toggleAttribute("data-dark", scheme.matches);
    const ink = getComputedStyle(root).getPropertyValue("--ink").trim();
    const touch = matchMedia("(pointer: coarse)").matches;
    return JSON.parse(read("charts").replaceAll(INK, ink)).map(async item => {
      const place = document.getElementById(item.target_id);
      if (!place) return;
      place.replaceChildren();
      const views = await Bokeh.embed.embed_item(item);
      for (const model of views.get_by_id ? [views.get_by_id(item.root_id).model] : []) {
        // A finger that moves over a chart scrolls the page.
        if (touch) model.toolbar.active_drag = null;
        if (item.target_id === "plot-trial") plot = model;
      }
      place.style.minHeight = "";
    });
  };
  Bokeh.logger.set_level("warn");
  const drawn = () => Promise.all(draw()).then(() => { root.dataset.drawn = "yes"; });
  drawn();
  scheme.addEventListener("change", drawn);

  const table = document.getElementById("trial-table");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const trials = JSON.parse(read("trial-data"));
  const filter = document.getElementById("filter");
  const more = document.getElementById("more");
  const PAGE = 25;
  let most = PAGE;

  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = [...body.rows].filter(row => words.every(word => row.textContent.toLowerCase().includes(word)));
    for (const row of rows) row.hidden = true;
    for (const row of found.slice(0, most)) row.hidden = false;
    more.hidden = found.length <= most;
    const some = found.length === rows.length ? "" : ` of ${rows.length}`;
    document.getElementById("shown").textContent = `${found.length}${some} trial${rows.length === 1 ? "" : "s"}`;
  };
  filter.addEventListener("input", () => { most = PAGE; show(); });
  more.addEventListener("click", () => { most += 4 * PAGE; show(); });

  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  table.tHead.addEventListener("click", event => {
    const head = event.target.closest("th");
    if (!head) return;
    const column = head.cellIndex;
    const numbers = rows[0].cells[column].dataset.v !== undefined;
    // The first click on a number puts the largest on top.
    const first = numbers && column > 0 ? "descending" : "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? second : first;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    body.append(...rows.sort((a, b) => sign * compare(value(a, column), value(b, column))));
    show();
  });

  const open = row => {
    const trial = trials[Number(row.dataset.trial)];
    const panel = document.getElementById("opened");
    for (const other of rows) other.classList.toggle("open", other === row);
    panel.hidden = false;
    panel.querySelector("h3").textContent = `Trial ${trial.id}`;
    const list = panel.querySelector("dl");
    list.replaceChildren(...trial.facts.map(([name, text]) => {
      const pair = document.createElement("div");
      const [term, fact] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = name;
      fact.textContent = text;
      pair.append(term, fact);
      return pair;
    }));
    const figure = document.getElementById("figure-trial");
    if (figure) figure.hidden = !trial.epochs.length;
    if (plot) {
      plot.renderers[0].data_source.data = { epoch: trial.epochs, accuracy: trial.accuracy };
      plot.x_range.setv({ start: 0, end: Math.max(1, ...trial.epochs) + 0.5 });
    }
    panel.querySelector("h3").focus({ preventScroll: true });
    panel.scrollIntoView({ block: "nearest" });
  };
  body.addEventListener("click", event => {
    const row = event.target.closest("tr");
    if (row) open(row);
  });
  show();
})();
