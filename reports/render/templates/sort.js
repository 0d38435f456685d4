"use strict";
// The heads of a sortable table sort its rows by their cells' data-key, or text: up, down, and as they came.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], came = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const key = (row, column) => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
  const compare = (column, sign) => (a, b) => {
    const x = key(a, column), y = key(b, column);
    // What was not measured stands last, whichever way.
    if (!x || !y) return !x - !y;
    return sign * (parseFloat(x) - parseFloat(y) || x.localeCompare(y, "en", { numeric: true }));
  };
  heads.forEach((head, column) => {
    if (head.dataset.sort === undefined) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => {
      const sign = { none: 1, ascending: -1, descending: 0 }[head.getAttribute("aria-sort") || "none"];
      for (const other of heads) other.removeAttribute("aria-sort");
      if (sign) head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      body.replaceChildren(...(sign ? [...came].sort(compare(column, sign)) : came));
    });
    head.replaceChildren(button);
  });
}
