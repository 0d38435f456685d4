"use strict";
// Filter, sort, page and link the two tables. Rows that are not in the HTML arrive escaped, in the payload.
(async () => {
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const PAGE = 12;

  const theme = $("theme");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  // Storage is refused to some pages opened from a file; the choice then lasts as long as the page.
  try { const kept = localStorage.getItem("theme"); if (kept) root.dataset.theme = kept; } catch (_) {}
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch (_) {}
    label();
  });
  label();

  // What scrolls sideways can be scrolled by keys alone.
  const reachable = () => {
    for (const box of document.querySelectorAll(".scroll")) box.toggleAttribute("tabindex", box.scrollWidth > box.clientWidth) && (box.tabIndex = 0);
  };
  addEventListener("resize", reachable);
  document.addEventListener("toggle", reachable, true);
  reachable();

  if (typeof DecompressionStream === "undefined") return;
  const unpack = (id) => {
    const bytes = Uint8Array.from(atob($(id).textContent.trim()), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  };
  const index = await unpack("payload");
  let details = null;
  root.classList.add("js");

  const inputs = { q: $("q"), verdict: $("verdict"), environment: $("environment-filter"), kind: $("kind") };
  const tables = {};
  const where = new Map();
  for (const [name, items] of Object.entries(index)) {
    const table = $("table-" + name);
    tables[name] = { name, items, table, body: table.tBodies[0], heads: [...table.tHead.rows[0].cells],
      more: document.querySelector(`[data-more="${name}"]`), sort: null, page: 0, shown: items };
    for (const item of items) where.set(item.id, [tables[name], item]);
  }

  const build = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  };
  const elements = (item) => (item.nodes ||= [build(item.html)]);
  // Rows of the HTML are taken before any is removed from the page.
  for (const t of Object.values(tables)) for (const item of t.items) if (item.html === undefined) {
    const row = document.getElementById(item.id);
    item.nodes = [row, row.nextElementSibling];
  }

  const matches = (item) => {
    const terms = inputs.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    return terms.every((term) => item.text.includes(term))
      && (!inputs.verdict.value || item.verdict === inputs.verdict.value)
      && (!inputs.environment.value || item.environment === inputs.environment.value)
      && (!inputs.kind.value || item.kind === inputs.kind.value);
  };
  const compare = (column, sign) => (a, b) => {
    const x = a.keys[column], y = b.keys[column];
    // What was not measured stands last, whichever way.
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
  };
  const button = (text, act) => {
    const made = document.createElement("button");
    made.type = "button"; made.textContent = text; made.addEventListener("click", act);
    return made;
  };

  const draw = (t) => {
    const first = t.page * PAGE, part = t.shown.slice(first, first + PAGE);
    t.body.replaceChildren(...part.flatMap(elements));
    t.more.replaceChildren();
    if (t.shown.length > PAGE) {
      if (first > 0) t.more.append(button("Earlier rows", () => { t.page--; draw(t); t.table.scrollIntoView(); }));
      if (first + PAGE < t.shown.length) t.more.append(button("Later rows", () => { t.page++; draw(t); t.table.scrollIntoView(); }));
      t.more.append(`rows ${first + 1} to ${first + part.length} of ${t.shown.length}`);
    } else if (!t.shown.length) t.more.append(t.items.length ? "No row matches the filter." : "");
  };
  const refresh = () => {
    for (const t of Object.values(tables)) {
      t.shown = t.items.filter(matches);
      if (t.sort) t.shown.sort(compare(t.sort[0], t.sort[1]));
      t.page = 0;
      t.heads.forEach((head, column) => head.setAttribute("aria-sort",
        !t.sort || t.sort[0] !== column ? "none" : t.sort[1] > 0 ? "ascending" : "descending"));
      draw(t);
    }
    const all = Object.values(tables);
    $("shown").textContent = "rows shown: " + all.map((t) => `${t.name} ${t.shown.length} of ${t.items.length}`).join(", ");
  };
  const keep = () => {
    const state = new URLSearchParams();
    for (const [name, input] of Object.entries(inputs)) if (input.value) state.set(name, input.value);
    for (const t of Object.values(tables)) if (t.sort) state.set("sort-" + t.name, (t.sort[1] < 0 ? "-" : "") + t.sort[0]);
    const query = state.toString();
    // Some browsers refuse this to a page opened from a file; filters then work, and are not in the address.
    try { history.replaceState(null, "", (query ? "?" + query : location.pathname) + location.hash); } catch (_) {}
  };

  const open = async (item, yes) => {
    if (yes && elements(item).length < 2) {
      details ||= unpack("details");
      const text = (await details)[item.id];
      if (item.nodes.length < 2) item.nodes.push(build(text));
      item.nodes[0].after(item.nodes[1]);
    }
    for (const node of elements(item)) node.classList.toggle("open", yes);
    elements(item)[0].querySelector(".open-link").setAttribute("aria-expanded", String(yes));
  };
  const follow = async () => {
    let id = location.hash.slice(1);
    try { id = decodeURIComponent(id); } catch (_) {}
    const found = where.get(id);
    if (!found) {
      const target = id && document.getElementById(id), fold = target && target.closest("details");
      if (fold && !fold.open) { fold.open = true; target.scrollIntoView(); }
      return;
    }
    const [t, item] = found;
    if (!t.shown.includes(item)) {
      for (const input of Object.values(inputs)) input.value = "";
      refresh(); keep();
    }
    t.page = Math.floor(t.shown.indexOf(item) / PAGE);
    draw(t);
    await open(item, true);
    elements(item)[0].scrollIntoView({ block: "start" });
    elements(item)[0].querySelector(".open-link").focus({ preventScroll: true });
  };

  for (const t of Object.values(tables)) {
    t.heads.forEach((head, column) => {
      head.replaceChildren(button(head.textContent, () => {
        const same = t.sort && t.sort[0] === column;
        t.sort = same && t.sort[1] < 0 ? null : [column, same ? -1 : 1];
        refresh(); keep();
      }));
    });
    t.body.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (!row || String(getSelection())) return;
      const item = where.get(row.id)[1];
      const link = event.target.closest("a");
      const was = row.classList.contains("open");
      if (link && !was) return;
      event.preventDefault();
      open(item, !was);
    });
  }
  for (const input of Object.values(inputs)) {
    input.addEventListener("input", () => { refresh(); keep(); });
  }
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", follow);
  let folds = [];
  addEventListener("beforeprint", () => {
    for (const t of Object.values(tables)) { t.body.replaceChildren(...t.shown.flatMap(elements)); t.more.replaceChildren(); }
    folds = [...document.querySelectorAll("section > details:not([open])")];
    for (const fold of folds) fold.open = true;
  });
  addEventListener("afterprint", () => { Object.values(tables).forEach(draw); for (const fold of folds) fold.open = false; });
  // A link to the row that the address already names changes nothing, and must still open it.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (link && link.hash === location.hash && !link.classList.contains("open-link")) follow();
  });

  addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, select, textarea");
    if (event.key === "Escape" && typing) { inputs.q.value = ""; refresh(); keep(); event.target.blur(); return; }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); inputs.q.focus(); return; }
    if (event.key !== "j" && event.key !== "k") return;
    const links = [...document.querySelectorAll(".rows .open-link")];
    const at = links.indexOf(document.activeElement);
    const next = at < 0 ? 0 : at + (event.key === "j" ? 1 : -1);
    if (links[next]) { links[next].focus(); links[next].closest(".row").scrollIntoView({ block: "nearest" }); }
  });

  const asked = new URLSearchParams(location.search);
  for (const [name, input] of Object.entries(inputs)) if (asked.get(name)) input.value = asked.get(name);
  for (const t of Object.values(tables)) {
    const sort = asked.get("sort-" + t.name);
    if (sort && t.heads[Math.abs(Number(sort))]) t.sort = [Math.abs(Number(sort)), sort.startsWith("-") ? -1 : 1];
  }
  $("filters").hidden = false;
  refresh();
  await follow();
  root.dataset.ready = "yes";
})();
