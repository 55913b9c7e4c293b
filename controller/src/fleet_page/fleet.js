// The page stands without this: it renews the contents every ten seconds, a large fleet's more rarely, and sorts tables.
"use strict";
const sorted = {};
function sort(table, column, down) {
  const rows = [...table.tBodies[0].rows];
  const value = (row) => row.cells[column].textContent.trim();
  rows.sort((one, other) => value(one).localeCompare(value(other), undefined, { numeric: true }));
  if (down) rows.reverse();
  table.tBodies[0].append(...rows);
}
function prepare() {
  document.querySelectorAll("table[data-sortable]").forEach((table, number) => {
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      const button = document.createElement("button");
      button.textContent = cell.textContent;
      button.addEventListener("click", () => {
        const down = sorted[number]?.column === column && !sorted[number].down;
        sorted[number] = { column, down };
        [...table.tHead.rows[0].cells].forEach((other) => other.removeAttribute("aria-sort"));
        cell.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, down);
      });
      cell.replaceChildren(button);
    });
    if (sorted[number]) sort(table, sorted[number].column, sorted[number].down);
  });
}
async function renew() {
  const begun = performance.now();
  if (!document.hidden) await renewNow();
  setTimeout(renew, Math.max(10000, 20 * (performance.now() - begun)));
}
async function renewNow() {
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of ["main", "footer"]) document.querySelector(part).replaceWith(page.querySelector(part));
    prepare();
  } catch { /* The next try may succeed; the time in the footer tells how old the page is. */ }
}
prepare();
setTimeout(renew, 10000);
