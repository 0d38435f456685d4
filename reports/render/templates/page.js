"use strict";
// Filter, sort, scroll and link the tables. Rows that are not in the HTML arrive escaped, in packed chunks.
(async () => {
  const root = document.documentElement;
  const $ = (id) => document.getElementById(id);
  const BLOCK = 40, CHUNKS = 64, PRINTED = 1000;

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

  // What scrolls can be scrolled by keys alone.
  const scrolls = (box) => box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
  const reach = (box) => { if (scrolls(box)) box.tabIndex = 0; else box.removeAttribute("tabindex"); };
  const reachable = () => document.querySelectorAll(".scroll").forEach(reach);
  addEventListener("resize", reachable);
  document.addEventListener("toggle", reachable, true);
  reachable();

  if (typeof DecompressionStream === "undefined") return;
  // Chunks of rows stand behind this script, which does not wait for them.
  const parsed = new Promise((done) => {
    if (document.readyState === "loading") addEventListener("DOMContentLoaded", done); else done();
  });
  const unpack = async (id) => {
    if (!$(id)) await parsed;
    const bytes = Uint8Array.from(atob($(id).textContent.trim()), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  };
  const { rows, ...index } = await unpack("payload");
  root.classList.add("js");

  const inputs = { q: $("q"), verdict: $("verdict"), environment: $("environment-filter"), kind: $("kind") };
  const word = (column, row) => column.words[column.at[row]];
  const tables = {};
  for (const [name, own] of Object.entries(index)) {
    const table = $("table-" + name), t = { ...own, name, table, box: table.parentElement, heads: [...table.tHead.rows[0].cells],
      more: document.querySelector(`[data-more="${name}"]`), sort: null, ranks: {}, blocks: [] };
    t.columns = t.heads.map((head) => own.keys[head.textContent] || rows[head.textContent.toLowerCase()]);
    t.items = own.order.map((row, place) => ({ t, row, place }));
    t.watcher = new IntersectionObserver((seen) => {
      for (const { target, isIntersecting } of seen) if (isIntersecting) fill(target); else leave(target);
    }, { root: t.box, rootMargin: "800px 0px" });
    tables[name] = t;
  }

  const build = (html, item) => {
    const template = document.createElement("template");
    template.innerHTML = html; // escaped where it was written, as all of the page is
    const made = template.content.firstElementChild;
    made.item = item;
    return made;
  };
  const chunks = new Map(); // the last that were unpacked
  const part = async (kind, { t, place }) => {
    const at = place - t.first, id = `${kind}-${t.name}-${Math.floor(at / t.size)}`;
    if (!chunks.has(id)) {
      if (chunks.size >= CHUNKS) chunks.delete(chunks.keys().next().value);
      chunks.set(id, unpack(id));
    }
    return (await chunks.get(id))[at % t.size];
  };
  const nodes = async (item) => {
    if (!item.nodes) {
      const html = item.html || await part("rows", item);
      item.nodes ||= [build(html, item)];
    }
    return item.nodes;
  };
  // Rows of the HTML are taken before any is removed from the page.
  for (const t of Object.values(tables)) for (const item of t.items.slice(0, t.first)) {
    const row = document.getElementById(`${t.name}/${rows.id[item.row]}`);
    item.nodes = [row, row.nextElementSibling];
    row.item = item;
  }

  let texts = null;
  const matching = (t) => {
    const terms = inputs.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fields = [rows.target, rows.kind, rows.workload, rows.device, rows.environment];
    if (terms.length) texts ||= rows.id.map((_, row) => fields.map((field) => word(field, row)).join(" ").toLowerCase());
    const picks = [[t.verdict, inputs.verdict], [rows.environment, inputs.environment], [rows.kind, inputs.kind]]
      .filter(([, input]) => input.value).map(([column, input]) => [column.at, column.words.indexOf(input.value)]);
    return t.items.filter(({ row }) => picks.every(([at, wanted]) => at[row] === wanted)
      && terms.every((term) => texts[row].includes(term)));
  };
  const collator = new Intl.Collator("en", { numeric: true });
  const ranked = (column) => {
    if (!column.words) return column;
    const rank = [];
    [...column.words.keys()].sort((a, b) => collator.compare(column.words[a], column.words[b])).forEach((at, place) => { rank[at] = place; });
    return column.at.map((at) => rank[at]);
  };
  const sorted = (t, items) => {
    if (!t.sort) return items;
    const [column, sign] = t.sort, ranks = (t.ranks[column] ||= ranked(t.columns[column]));
    return items.sort((a, b) => {
      const x = ranks[a.row], y = ranks[b.row];
      // What was not measured stands last, whichever way.
      return x === null || y === null ? (x === null) - (y === null) : sign * (x - y);
    });
  };

  // A long table scrolls in a box of its own, in blocks of rows: those out of sight are an empty row as high as they.
  const space = (block, height) => {
    const row = document.createElement("tr");
    row.className = "space";
    row.setAttribute("aria-hidden", "true");
    row.append(document.createElement("td"));
    row.cells[0].colSpan = block.t.heads.length;
    row.cells[0].style.height = height + "px";
    block.replaceChildren(row);
  };
  const fill = async (block, always = false) => {
    block.wanted = true;
    if (block.filled) return;
    const made = await Promise.all(block.items.map(nodes));
    if (block.filled || !block.isConnected || !(block.wanted || always)) return;
    block.replaceChildren(...made.flat());
    made.forEach(([row], at) => row.setAttribute("aria-rowindex", block.first + at + 2));
    block.filled = true;
  };
  const leave = (block) => {
    block.wanted = false;
    if (!block.filled || block.contains(document.activeElement)) return;
    space(block, block.offsetHeight);
    for (const item of block.items) if (item.place >= item.t.first && item.nodes.length < 2) item.nodes = null;
    block.filled = false;
  };
  const draw = async (t) => {
    const long = t.shown.length > BLOCK;
    t.watcher.disconnect();
    for (const body of [...t.table.tBodies]) body.remove();
    t.blocks = [];
    for (let first = 0; first < t.shown.length; first += BLOCK) {
      const block = document.createElement("tbody");
      t.blocks.push(Object.assign(block, { t, first, items: t.shown.slice(first, first + BLOCK) }));
    }
    t.table.append(...t.blocks);
    t.table.setAttribute("aria-rowcount", t.shown.length + 1);
    t.box.classList.toggle("long", long);
    t.box.scrollTop = 0;
    t.more.textContent = long ? `${t.shown.length} rows: scroll inside the table, filter, or sort by a heading.`
      : t.shown.length || !t.items.length ? "" : "No row matches the filter.";
    const [top, ...rest] = t.blocks;
    if (!top) return;
    await fill(top, true);
    if (!top.isConnected) return; // drawn again since
    const height = top.offsetHeight / top.items.length;
    for (const block of rest) space(block, height * block.items.length);
    for (const block of [top, ...rest]) t.watcher.observe(block);
    reach(t.box);
  };
  const refresh = () => {
    for (const t of Object.values(tables)) {
      t.shown = sorted(t, matching(t));
      t.heads.forEach((head, column) => head.setAttribute("aria-sort",
        !t.sort || t.sort[0] !== column ? "none" : t.sort[1] > 0 ? "ascending" : "descending"));
    }
    const all = Object.values(tables);
    $("shown").textContent = "rows shown: " + all.map((t) => `${t.name} ${t.shown.length} of ${t.items.length}`).join(", ");
    return Promise.all(all.map(draw));
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
    const held = item.nodes;
    if (yes && held.length < 2) {
      const html = await part("details", item);
      if (held.length < 2) held.push(build(html, item));
      held[0].after(held[1]);
    }
    for (const node of held) node.classList.toggle("open", yes);
    held[0].querySelector(".open-link").setAttribute("aria-expanded", String(yes));
  };
  const follow = async () => {
    let id = location.hash.slice(1);
    try { id = decodeURIComponent(id); } catch (_) {}
    const t = tables[id.split("/", 1)[0]], at = t ? rows.id.indexOf(id.slice(t.name.length + 1)) : -1;
    if (at < 0) {
      const target = id && document.getElementById(id), fold = target && target.closest("details");
      if (fold && !fold.open) { fold.open = true; target.scrollIntoView(); }
      return;
    }
    const item = t.items.find(({ row }) => row === at);
    if (!t.shown.includes(item)) {
      for (const input of Object.values(inputs)) input.value = "";
      await refresh(); keep();
    }
    await fill(t.blocks[Math.floor(t.shown.indexOf(item) / BLOCK)], true);
    const [row] = item.nodes;
    row.scrollIntoView({ block: "start" });
    await open(item, true);
    row.scrollIntoView({ block: "start" });
    row.querySelector(".open-link").focus({ preventScroll: true });
  };

  for (const t of Object.values(tables)) {
    t.heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      button.addEventListener("click", () => {
        const same = t.sort && t.sort[0] === column;
        t.sort = same && t.sort[1] < 0 ? null : [column, same ? -1 : 1];
        refresh(); keep();
      });
      head.replaceChildren(button);
    });
    t.table.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (!row || String(getSelection())) return;
      const link = event.target.closest("a");
      const was = row.classList.contains("open");
      if (link && !was) return;
      event.preventDefault();
      open(row.item, !was);
    });
  }
  for (const input of Object.values(inputs)) {
    input.addEventListener("input", () => { refresh(); keep(); });
  }
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", follow);
  let folds = [];
  addEventListener("beforeprint", () => {
    for (const t of Object.values(tables)) {
      t.watcher.disconnect();
      for (const block of t.blocks) block.replaceChildren(...block.items.flatMap((item) => item.nodes || (item.html ? [build(item.html, item)] : [])));
      const left = t.shown.length - t.table.querySelectorAll(".row").length;
      t.more.textContent = left ? `${left} more rows are in summary.json.` : "";
    }
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
  await refresh();
  await follow();
  // Print does not wait: the rows of all but the longest tables are at hand.
  for (const t of Object.values(tables)) if (t.items.length <= PRINTED) {
    for (const item of t.items.slice(t.first)) item.html = await part("rows", item);
  }
  root.dataset.ready = "yes";
})();
