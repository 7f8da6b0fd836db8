"use strict";
{
  // Highlight: pointing at an encoding in a figure, legend or table dims the others everywhere; a click keeps it so.
  const marked = [...document.querySelectorAll("[data-encoding]")];
  let shown = null;
  let pinned = null;

  const chip = document.createElement("div");
  const name = document.createElement("span");
  const clear = document.createElement("button");
  chip.className = "picked";
  chip.hidden = true;
  clear.type = "button";
  clear.textContent = "show all";
  chip.append(name, clear);
  document.body.append(chip);
  document.body.classList.add("script");

  const show = (encoding) => {
    if (encoding === shown) return;
    shown = encoding;
    for (const each of marked) {
      each.classList.toggle("lit", each.dataset.encoding === encoding);
      each.classList.toggle("dimmed", encoding !== null && each.dataset.encoding !== encoding);
      if (each.dataset.encoding === encoding && each.tagName === "g") each.parentNode.append(each); // in front of the others
    }
  };
  const pin = (encoding) => {
    pinned = encoding;
    name.textContent = encoding ?? "";
    chip.hidden = encoding === null;
    for (const each of document.querySelectorAll(".legend [data-encoding]")) {
      each.setAttribute("aria-pressed", String(each.dataset.encoding === encoding));
    }
    show(encoding);
  };
  const toggle = (encoding) => pin(encoding === pinned ? null : encoding);
  const find = (target) => target.closest("[data-encoding]")?.dataset.encoding ?? null;

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "touch") show(find(event.target) ?? pinned);
  });
  document.addEventListener("click", (event) => {
    const encoding = find(event.target);
    if (encoding !== null && getSelection().isCollapsed) toggle(encoding);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") pin(null);
  });
  clear.addEventListener("click", () => pin(null));

  for (const each of document.querySelectorAll(".legend [data-encoding]")) {
    each.tabIndex = 0;
    each.setAttribute("role", "button");
    each.setAttribute("aria-pressed", "false");
    each.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle(each.dataset.encoding);
    });
  }

  // Lines are thin: an invisible wide copy of each takes the pointer.
  for (const line of document.querySelectorAll(".plot g[data-encoding] > path")) {
    if (line.style.fill !== "none") continue;
    const copy = line.cloneNode();
    copy.style.cssText = "fill:none;stroke:transparent;stroke-width:9;pointer-events:stroke";
    line.after(copy);
  }

  // Sort: a click on a header sorts by its column, numbers from the largest; another turns the order, a third restores it.
  const value = (row, column) => {
    const cell = row.cells[column];
    const text = cell.textContent.trim();
    if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
    if (text === "–") return null;
    const number = /^[+−-]?[\d.,]+(e[+-]?\d+)?(?=\s|$)/.exec(text);
    return number === null ? text : Number(number[0].replaceAll(",", "").replace("−", "-"));
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));

  for (const table of document.querySelectorAll("table.sortable")) {
    const headers = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const original = [...body.rows];
    headers.forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      header.replaceChildren(button);
      button.addEventListener("click", () => {
        const values = new Map(original.map((row) => [row, value(row, column)]));
        const numeric = [...values.values()].every((each) => each === null || typeof each === "number");
        const orders = [null, ...(numeric ? ["descending", "ascending"] : ["ascending", "descending"])];
        const order = orders[(orders.indexOf(header.getAttribute("aria-sort")) + 1) % orders.length];
        for (const each of headers) each.removeAttribute("aria-sort");
        let rows = original;
        if (order !== null) {
          header.setAttribute("aria-sort", order);
          const sign = order === "ascending" ? 1 : -1;
          const present = original.filter((row) => values.get(row) !== null);
          present.sort((a, b) => sign * compare(values.get(a), values.get(b)));
          rows = [...present, ...original.filter((row) => values.get(row) === null)];
        }
        body.append(...rows);
      });
    });
  }
}
