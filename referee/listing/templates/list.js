"use strict";
// Filters above the tables of a list. Without JavaScript all rows are shown.
(() => {
  const place = document.getElementById("filters");
  const rows = [...document.querySelectorAll("table.results tr")].filter(row => row.querySelector("td"));
  if (!place || !rows.length) return;
  const CHOICES = ["accelerators", "processor", "nodes", "suite", "status"];
  const cell = (row, name) => row.querySelector(`td[data-h="${name}"]`)?.textContent.trim() ?? "";
  // 8 x H100 and 16 x H100 are one choice: the model.
  const value = (row, name) => name === "accelerators" ? cell(row, name).replace(/^\d+ x /, "") : cell(row, name);
  const labelled = (text, control) => {
    const label = document.createElement("label");
    label.append(`${text} `, control);
    place.append(label);
    return control;
  };
  const search = document.createElement("input");
  search.type = "search";
  labelled("Filter", search);
  const selects = new Map();
  for (const name of CHOICES) {
    const values = [...new Set(rows.map(row => value(row, name)))].filter(text => text && text !== "-");
    if (values.length < 2) continue;
    values.sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
    const select = document.createElement("select");
    for (const text of ["", ...values]) select.append(new Option(text || "any", text));
    selects.set(name, labelled(name, select));
  }
  const count = document.createElement("span");
  count.className = "soft";
  count.setAttribute("aria-live", "polite");
  place.append(count);
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = words.every(word => text.includes(word))
        && [...selects].every(([name, select]) => !select.value || value(row, name) === select.value);
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = shown < rows.length ? `${shown} of ${rows.length} rows` : "";
  };
  place.addEventListener("input", show);
  place.hidden = false;
  show();
})();
