"use strict";
// Draws the figures in the colours of the current theme, sorts tables, hands out CSV and SVG.
(() => {
  const root = document.documentElement;
  const { palettes } = JSON.parse(document.getElementById("colours").textContent);
  let [figures, tables] = [{}, {}]; // packed in the page, as numbers take a seventh so
  const plots = [...document.querySelectorAll(".plot")];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const config = { displayModeBar: false, responsive: true, doubleClick: false, scrollZoom: false, showTips: false };
  let printing = false;

  const theme = () => (printing ? "light" : root.dataset.theme || (dark.matches ? "dark" : "light"));

  // A figure names its colours: "@absolute" stands for the colour of that name in the palette.
  const coloured = (part, palette) => {
    if (typeof part === "string") return part.startsWith("@") && part.slice(1) in palette ? palette[part.slice(1)] : part;
    if (Array.isArray(part)) return part.map((p) => coloured(p, palette));
    if (part && typeof part === "object") return Object.fromEntries(Object.entries(part).map(([k, v]) => [k, coloured(v, palette)]));
    return part;
  };
  // Models that a reader has taken out: their lines, names and rows are not drawn.
  const absent = new Set();
  const present = ({ data, layout }) => {
    if (!absent.size) return { data, layout };
    const { ticktext, tickvals } = layout.yaxis ?? {};
    const rows = ticktext?.flatMap((name, i) => (absent.has(name) ? [] : [i]));
    const ticks = rows && { ticktext: rows.map((i) => ticktext[i]), tickvals: rows.map((i) => tickvals[i]) };
    return {
      data: data.filter((trace) => !trace.meta?.some((name) => absent.has(name))),
      layout: { ...layout, annotations: layout.annotations?.filter((note) => !absent.has(note.name)), yaxis: { ...layout.yaxis, ...ticks } },
    };
  };
  const spec = (id, panel, name) => coloured(present(figures[id][panel]), palettes[name]);

  const draw = (plot) => {
    if (!open(plot)) return Promise.resolve();
    const { data, layout } = spec(plot.dataset.figure, Number(plot.dataset.panel), theme());
    if (layout.meta?.square) { // as high as its width needs, never higher than it says
      const { l, r, t, b } = layout.margin;
      layout.height = Math.min(layout.height, plot.clientWidth - l - r + t + b);
      plot.style.height = `${layout.height}px`;
    }
    if (printing) layout.width = plot.clientWidth; // there is no time for plotly to look at the new width itself
    // A plot keeps the width that it was first drawn with, until the window changes.
    return Plotly.react(plot, data, layout, config).then(() => printing || plot._fullLayout.width === plot.clientWidth || Plotly.Plots.resize(plot));
  };

  // What a fold or a switch hides has no width; it is drawn when it opens.
  const open = (plot) => !plot.closest("details:not([open]), [hidden]");
  // Rows of equally many panels, none alone on the last one where that can be.
  const balance = () => {
    for (const panels of document.querySelectorAll(".panels")) {
      const [all, even] = [[...panels.children].filter((panel) => !panel.hidden), panels.classList.contains("even")];
      if (!panels.clientWidth || !all.length) continue;
      panels.style.gridTemplateColumns = "";
      for (const panel of all) panel.style.flexBasis = "";
      if (innerWidth <= 640) continue; // a panel a row, by the style sheet
      const least = Math.max(...all.map((panel) => parseFloat(getComputedStyle(panel).flexBasis)));
      const fit = even ? getComputedStyle(panels).gridTemplateColumns.split(" ").length : Math.max(1, Math.floor((panels.clientWidth + 18) / (least + 18)));
      const columns = Math.ceil(all.length / Math.ceil(all.length / fit));
      if (even) panels.style.gridTemplateColumns = `repeat(${Math.max(columns, Math.min(fit, 2))}, minmax(0, 1fr))`;
      else for (const panel of all) panel.style.flexBasis = `calc(${100 / columns}% - 18px)`;
    }
  };
  addEventListener("resize", balance);
  const redraw = (part) => {
    balance();
    [...part.querySelectorAll(".plot")].filter(open).forEach((plot) => unpacked.then((ready) => ready && draw(plot)));
  };
  for (const fold of document.querySelectorAll("details.fold")) fold.addEventListener("toggle", () => fold.open && redraw(fold));
  for (const choice of document.querySelectorAll(".choice")) {
    const [buttons, options] = [[...choice.querySelectorAll(".switch button")], [...choice.querySelectorAll(".option")]];
    buttons.forEach((button, i) => button.addEventListener("click", () => {
      buttons.forEach((other, j) => other.setAttribute("aria-pressed", String(i === j)));
      options.forEach((option, j) => (option.hidden = i !== j));
      redraw(options[i]);
    }));
  }
  const models = Object.fromEntries([...document.querySelectorAll("button.model")].map((model) => [model.dataset.model, model]));
  const arrange = () => {
    for (const plot of plots) { // a panel stands as long as one of its models does
      const traces = figures[plot.dataset.figure]?.[plot.dataset.panel].data ?? [];
      const drawn = [plot.parentNode.dataset.model, ...traces.flatMap((trace) => trace.meta ?? [])];
      const own = plot.parentNode.dataset.model in models ? drawn.slice(0, 1) : drawn.filter((each) => each in models);
      plot.parentNode.hidden = own.length > 0 && own.every((each) => absent.has(each));
    }
  };
  for (const [name, model] of Object.entries(models)) if (model.getAttribute("aria-pressed") === "false") absent.add(name); // of a page of many
  for (const model of Object.values(models)) {
    model.addEventListener("click", () => {
      const name = model.dataset.model;
      if (!absent.delete(name)) absent.add(name);
      model.setAttribute("aria-pressed", String(!absent.has(name)));
      arrange();
      balance();
      drawAll();
    });
  }
  // A link into a fold opens it.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    if (target.tagName === "TR") target.hidden = false;
    for (const fold of [target.querySelector(":scope > details"), target.querySelector("td details"), ...parents(target)]) if (fold) fold.open = true;
    target.scrollIntoView();
  };
  const parents = (part) => {
    const folds = [];
    for (let fold = part.parentElement?.closest("details"); fold; fold = fold.parentElement?.closest("details")) folds.push(fold);
    return folds;
  };
  addEventListener("hashchange", reveal);

  // Claims: a row stands there if it passes every filter.
  const filters = [...document.querySelectorAll("[data-filter]")];
  const passes = (value, wanted) => wanted === "" || value === wanted;
  const filtered = () => {
    for (const row of document.querySelectorAll(".claims tr[data-verdict]")) row.hidden = !filters.every((f) => passes(row.dataset[f.dataset.filter], f.value));
    const some = (part) => part.querySelector("tr[data-verdict]:not([hidden])") !== null;
    const wanted = filters.find((f) => f.dataset.filter === "verdict").value;
    for (const fold of document.querySelectorAll(".unjudged")) {
      for (const group of fold.querySelectorAll("tbody")) group.hidden = !some(group);
      fold.hidden = !some(fold);
      fold.open = fold.dataset.verdict === wanted;
    }
  };
  const none = document.getElementById("no-claims");
  const told = () => none && (none.hidden = document.querySelector(".claims tr[data-verdict]:not([hidden])") !== null);
  filters.forEach((filter) => filter.addEventListener("change", () => (filtered(), told())));

  // One after the other: those near the screen as soon as they come near, all others in their order while the browser has nothing else
  // to do, so that the page answers at once and is whole in the end.
  const near = new Set();
  const observer = new IntersectionObserver(
    (seen) => seen.forEach((entry) => near[entry.isIntersecting ? "add" : "delete"](entry.target)),
    { rootMargin: "50% 0px" },
  );
  plots.forEach((plot) => observer.observe(plot));
  const pause = () => new Promise((done) => setTimeout(done, 0));
  const idle = () => (window.requestIdleCallback ? new Promise((done) => requestIdleCallback(done, { timeout: 200 })) : pause());
  // What is drawn and the library that draws it are packed. The library runs as a script of its own, whose hash the page's policy knows.
  const inflated = (part) => {
    const packed = Uint8Array.from(atob(part.textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  };
  const library = document.getElementById("plotly");
  const unpacked = (async () => {
    if (typeof DecompressionStream === "undefined") {
      arrange();
      if (!library) return true; // nothing is drawn here
      const words = document.createElement("p");
      words.className = "caveat";
      words.textContent = "This browser cannot unpack the figures: it has no DecompressionStream. Chrome from 80, Firefox from 113 and Safari from 16.4 have it. The data tables hold the first values, records.parquet all.";
      document.querySelector("header.head").append(words);
      return false;
    }
    ({ figures, tables } = JSON.parse(await inflated(document.getElementById("data"))));
    arrange();
    balance();
    reveal();
    if (!library) return true;
    const script = document.createElement("script");
    script.textContent = await inflated(library);
    document.head.append(script);
    library.remove();
    return true;
  })();
  let round = 0;
  const drawAll = async () => {
    const mine = ++round;
    delete root.dataset.ready;
    if (!(await unpacked)) return;
    if (mine !== round) return;
    const waiting = new Set(plots.filter(open));
    while (waiting.size) {
      const plot = [...near].find((p) => waiting.has(p)) ?? waiting.values().next().value;
      waiting.delete(plot);
      await draw(plot);
      await (near.has(plot) ? pause() : idle());
      if (mine !== round) return;
    }
    root.dataset.ready = "true";
  };

  // Theme: the system's until the reader chooses; a choice outlives the page where the browser lets it.
  const button = document.getElementById("theme");
  const stored = (value) => {
    try {
      if (value) localStorage.setItem("whatwhere-theme", value);
      return localStorage.getItem("whatwhere-theme");
    } catch {
      return null;
    }
  };
  const label = () => {
    const isDark = theme() === "dark";
    button.setAttribute("aria-pressed", String(isDark));
    button.setAttribute("aria-label", isDark ? "Dark colours, switch to light" : "Light colours, switch to dark");
    button.querySelector("span").textContent = isDark ? "Light" : "Dark";
  };
  const before = stored();
  if (before === "dark" || before === "light") root.dataset.theme = before;
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    stored(root.dataset.theme);
    label();
    drawAll();
  });
  dark.addEventListener("change", () => {
    label();
    drawAll();
  });
  // Paper: light colours, and figures as wide as a page.
  const print = (on) => () => {
    printing = on;
    root.classList.toggle("printing", on);
    if (typeof Plotly !== "undefined") for (const plot of plots.filter(open)) draw(plot).then(() => printing || Plotly.Plots.resize(plot));
  };
  addEventListener("beforeprint", print(true));
  addEventListener("afterprint", print(false));

  // Tables: a click on a heading sorts by it, a second click turns the order round; empty cells stay last.
  const raw = (cell) => cell.dataset.v ?? (cell.textContent === "–" ? "" : cell.textContent);
  const order = (a, b) => {
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
  };
  for (const head of document.querySelectorAll("th:has(.sort)")) {
    head.querySelector(".sort").addEventListener("click", () => {
      const table = head.closest("table");
      const column = [...head.parentNode.children].indexOf(head);
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const keyed = [...table.tBodies[0].rows].map((row) => [raw(row.cells[column]), row]);
      keyed.sort(([a], [b]) => (a === "" ? (b === "" ? 0 : 1) : b === "" ? -1 : up ? order(a, b) : order(b, a)));
      table.tBodies[0].append(...keyed.map(([, row]) => row));
    });
  }

  // A cell shows its value with all digits when it is pointed at.
  document.addEventListener("mouseover", (event) => {
    const cell = event.target.closest?.("td[data-v]");
    if (cell && !cell.title) cell.title = `${cell.closest("table").tHead.rows[0].cells[cell.cellIndex].textContent.trim()}: ${cell.dataset.v}`;
  });

  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // A text that a spreadsheet would run as a formula is written with an apostrophe before it.
  const quoted = (value) => {
    const safe = /^[=+@\t\r-]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : value;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  for (const csv of document.querySelectorAll("button.csv")) {
    csv.addEventListener("click", async () => {
      await unpacked;
      const table = document.getElementById(csv.dataset.table);
      if (table.dataset.name in tables) return save(`${table.dataset.name}.csv`, "text/csv", tables[table.dataset.name]); // more than stands here
      const heads = [...table.tHead.rows[0].cells].map((c) => quoted(c.textContent.trim()));
      const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map((c) => quoted(raw(c))));
      save(`${table.dataset.name}.csv`, "text/csv", [heads, ...rows].map((r) => r.join(",")).join("\r\n") + "\r\n");
    });
  }

  // SVG: the panels of a figure as they stand on the page, under its title, always in the light colours.
  const NS = "http://www.w3.org/2000/svg";
  const words = (text, x, y, size, weight, fill) => {
    const node = document.createElementNS(NS, "text");
    for (const [k, v] of Object.entries({ x, y, fill, "font-size": size, "font-weight": weight, "font-family": "sans-serif" })) node.setAttribute(k, v);
    node.textContent = text;
    return node;
  };
  const wrapped = (text, width, size) => {
    const lines = [""];
    for (const word of text.split(/\s+/)) {
      const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
      if (longer.length * size * 0.54 > width && lines.at(-1)) lines.push(word);
      else lines[lines.length - 1] = longer;
    }
    return lines;
  };
  const svgOf = async (id) => {
    const figure = document.getElementById(`figure-${id}`);
    const panels = [...figure.querySelectorAll(".plot")].filter(open);
    const box = figure.querySelector(".panels").getBoundingClientRect();
    const out = document.createElementNS(NS, "svg");
    const { surface, text, muted } = palettes.light;
    let y = 26;
    for (const line of wrapped(figure.querySelector("figcaption > :first-child").textContent, box.width, 18)) {
      out.append(words(line, 8, y, 18, 600, text));
      y += 24;
    }
    for (const line of wrapped(figure.querySelector(".sub").textContent, box.width, 14)) {
      out.append(words(line, 8, y, 14, 400, muted));
      y += 20;
    }
    for (const plot of panels) {
      const place = plot.getBoundingClientRect();
      const { data, layout } = spec(id, Number(plot.dataset.panel), "light");
      const url = await Plotly.toImage({ data, layout: { ...layout, width: place.width, height: place.height } }, { format: "svg", width: place.width, height: place.height });
      const inner = new DOMParser().parseFromString(decodeURIComponent(url.slice(url.indexOf(",") + 1)), "image/svg+xml").documentElement;
      inner.setAttribute("x", place.left - box.left);
      inner.setAttribute("y", place.top - box.top + y);
      out.append(inner);
      const title = plot.parentNode.querySelector(".paneltitle");
      if (title) out.append(words(title.textContent, place.left - box.left + 8, place.top - box.top + y - 6, 15, 600, text));
    }
    const [width, height] = [Math.ceil(box.width), Math.ceil(box.height + y)];
    for (const [k, v] of Object.entries({ xmlns: NS, width, height, viewBox: `0 0 ${width} ${height}` })) out.setAttribute(k, v);
    const ground = document.createElementNS(NS, "rect");
    for (const [k, v] of Object.entries({ width: "100%", height: "100%", fill: surface })) ground.setAttribute(k, v);
    out.prepend(ground);
    return new XMLSerializer().serializeToString(out);
  };
  for (const svg of document.querySelectorAll("button.svg")) {
    svg.addEventListener("click", async () => save(`${svg.dataset.figure}.svg`, "image/svg+xml", await svgOf(svg.dataset.figure)));
  }

  label();
  balance();
  drawAll();
  reveal();
})();
