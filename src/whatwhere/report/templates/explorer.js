"use strict";
// The attention explorer: inflates the maps of a term when they are first shown, and draws them in the colours of the current theme.
(() => {
  const host = document.getElementById("ex");
  if (!host) return;
  const root = document.documentElement;
  const { models } = JSON.parse(document.getElementById("explorer-data").textContent);
  const { palettes } = JSON.parse(document.getElementById("colours").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const FONT = `14px ${getComputedStyle(host).fontFamily}`;
  const PAIRS = 20; // rows of the table of strongest pairs
  const LINE = 16; // pixels between two labels of an axis

  // Everything from outside goes through here: strings become text nodes, never markup.
  const el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };

  if (typeof DecompressionStream === "undefined") {
    const words = "This browser cannot unpack the maps: it has no DecompressionStream. Chrome from 80, Firefox from 113 and Safari from 16.4 have it.";
    host.append(el("p", { class: "caveat", role: "alert" }, words));
    host.dataset.ready = "true";
    return;
  }

  const now = { model: 0, text: 0, term: "", layer: 0, head: 0, query: 0, key: 0, alone: null, pinned: false, same: false };
  const model = () => models[now.model];
  const text = () => model().texts[now.text];
  const size = () => text().tokens.length;
  const label = (name) => model().terms.find((t) => t.name === name)?.label ?? name;
  const shownTerms = () => model().terms.filter((t) => !now.alone || t.name === now.alone);

  // ---- Data

  const cache = new Map();
  const inflate = async (chunk) => {
    const packed = Uint8Array.from(atob(document.getElementById(`explorer-chunk-${chunk}`).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const once = (key, make) => {
    if (!cache.has(key)) cache.set(key, make());
    return cache.get(key);
  };
  // All heads of a layer, one byte a weight: the difference to the row above (1) or to the same lag there (2) is undone.
  const levels = (term, layer) => {
    const [chunk, filter] = text().maps[term][layer];
    const n = size();
    return once(`${chunk} ${filter} ${n}`, async () => {
      const bytes = await inflate(chunk);
      for (let start = 0; start < bytes.length && filter; start += n * n) {
        for (let row = 1; row < n; row++) {
          const at = start + row * n;
          if (filter === 1) for (let i = at; i < at + n; i++) bytes[i] += bytes[i - n];
          else for (let i = at + 1; i < at + n; i++) bytes[i] += bytes[i - n - 1];
        }
      }
      return bytes;
    });
  };
  const head = (bytes, number) => bytes.subarray(number * size() ** 2, (number + 1) * size() ** 2);

  // ---- Colours

  const palette = () => palettes[root.classList.contains("printing") ? "light" : root.dataset.theme || (dark.matches ? "dark" : "light")];
  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const scaleColours = () => Array.from({ length: 9 }, (_, i) => rgb(palette()[`map-${i}`]));
  // Colours go with the root of the weight, so that a factor of a hundred stays visible.
  const colour = (share, colours) => {
    const place = Math.sqrt(Math.min(1, Math.max(0, share))) * 8;
    const low = Math.min(7, Math.floor(place));
    return colours[low].map((c, i) => Math.round(c + (colours[low + 1][i] - c) * (place - low)));
  };
  const table = (weights, top) => {
    const colours = scaleColours();
    return Uint32Array.from(weights, (w) => {
      const [r, g, b] = colour(top > 0 ? w / top : 0, colours);
      return (255 << 24) | (b << 16) | (g << 8) | r;
    });
  };
  // The weight that one entry in a thousand exceeds: the darkest colour begins there.
  const topOf = (map, weights) => {
    const counts = new Uint32Array(256);
    for (let i = 0; i < map.length; i++) counts[map[i]]++;
    let left = Math.floor(map.length / 1000);
    for (let level = weights.length - 1; level > 0; level--) {
      left -= counts[level];
      if (left < 0) return weights[level];
    }
    return weights[1];
  };
  const bitmap = (map, n, weights, top) => {
    const image = new ImageData(n, n);
    const pixels = new Uint32Array(image.data.buffer);
    const colours = table(weights, top);
    for (let i = 0; i < pixels.length; i++) pixels[i] = colours[map[i]];
    const canvas = el("canvas", { width: n, height: n });
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  };
  // A small map: means over blocks where there are more tokens than pixels.
  const thumbnail = (map, weights, side, shared) => {
    const n = size();
    const block = Math.ceil(n / (side * (devicePixelRatio || 1)));
    if (block === 1) return bitmap(map, n, weights, shared || topOf(map, weights));
    const m = Math.ceil(n / block);
    const sums = new Float32Array(m * m);
    for (let q = 0, i = 0; q < n; q++) {
      const row = Math.floor(q / block) * m;
      for (let k = 0; k < n; k++, i++) sums[row + Math.floor(k / block)] += weights[map[i]];
    }
    for (let a = 0; a < m; a++) for (let b = 0; b < m; b++) sums[a * m + b] /= Math.min(block, n - a * block) * Math.min(block, n - b * block);
    const top = shared || Float32Array.from(sums).sort()[Math.floor(sums.length * 0.999)];
    const fine = Uint8Array.from(sums, (w) => Math.round(255 * Math.sqrt(Math.min(1, w / top))));
    return bitmap(fine, m, Float32Array.from({ length: 256 }, (_, i) => top * (i / 255) ** 2), top);
  };
  const prepare = (canvas, width, height) => {
    const ratio = devicePixelRatio || 1;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w) canvas.width = w;
    if (canvas.height !== h) canvas.height = h;
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    return context;
  };
  const paint = (context, image, x, y, side) => {
    context.imageSmoothingEnabled = image.width > side * (devicePixelRatio || 1);
    context.imageSmoothingQuality = "high";
    context.drawImage(image, x, y, side, side);
  };

  const number = (w, least) => (w > 0 ? (w >= 0.0001 ? String(Number(w.toPrecision(2))) : w.toExponential(0)) : least ? `under ${number(least / 4)}` : "0");
  const short = (token, most = 28) => (token.length > most ? `${[...token].slice(0, most - 1).join("")}…` : token);

  // ---- The frame

  const modelSelect = el("select", { id: "ex-model" }, ...models.map((m, i) => el("option", { value: i }, m.name)));
  const slider = el("input", { type: "range", id: "ex-text", min: 0, value: 0, step: 1 });
  const textName = el("output", { for: "ex-text" });
  const termBox = el("fieldset", { class: "ex-terms" });
  const sameBox = el("input", { type: "checkbox", id: "ex-same" });
  const bar = el(
    "div",
    { class: "ex-bar" },
    el("div", { class: "ex-field", hidden: models.length > 1 ? null : "" }, el("label", { for: "ex-model" }, "Model"), modelSelect),
    el("div", { class: "ex-field ex-texts" }, el("label", { for: "ex-text" }, "Text"), slider, textName),
    termBox,
    el("div", { class: "ex-field" }, sameBox, el("label", { for: "ex-same" }, "one colour scale for all maps")),
  );
  const missing = el("p", { class: "ex-missing" });
  const gridTitle = el("h3", { id: "ex-grid-title" });
  const grid = el("div", { role: "grid", class: "ex-grid", "aria-labelledby": "ex-grid-title" });
  const scaleNote = el("p", { class: "note ex-scale" });
  const headTitle = el("h3", { id: "ex-head-title" });
  const readout = el("p", { class: "ex-readout" });
  const live = el("p", { class: "ex-live", role: "status" });
  const maps = el("div", { class: "ex-maps" });
  const strip = el("p", { class: "ex-strip", "aria-label": "The text, token by token" });
  const stripTitle = el("h3");
  const below = el("div", { class: "ex-below" });
  const pairs = el("tbody");
  const pairsTitle = el("caption");
  const heads = ["Rank", "Query", "Key", "Weight"].map((name, i) => el("th", { scope: "col", class: i % 3 ? null : "n" }, name));
  const pairsTable = el("table", { id: "ex-pairs" }, pairsTitle, el("thead", {}, el("tr", {}, ...heads)), pairs);
  const pairsFold = el("details", {}, el("summary", {}, `The ${PAIRS} strongest pairs as a table`), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Strongest pairs" }, pairsTable));
  host.append(
    bar,
    missing,
    el("div", { class: "ex-body" }, el("div", { class: "ex-left" }, gridTitle, grid, scaleNote), el("div", { class: "ex-right" }, headTitle, readout, maps)),
    stripTitle,
    strip,
    below,
    pairsFold,
    live,
  );

  // ---- The grid of heads

  let cells = [];
  const buildGrid = () => {
    const { layers, heads: count } = model();
    grid.style.setProperty("--heads", count);
    grid.setAttribute("aria-rowcount", layers + 1);
    grid.setAttribute("aria-colcount", count + 1);
    cells = [];
    const top = el("div", { role: "row" }, el("span", { role: "columnheader", class: "ex-corner" }, el("span", { class: "ex-live" }, "layer and head")));
    for (let h = 0; h < count; h++) top.append(el("span", { role: "columnheader" }, h ? `${h}` : count < 9 ? "head 0" : "0"));
    const rows = [top];
    for (let l = 0; l < layers; l++) {
      const row = el("div", { role: "row" }, el("span", { role: "rowheader" }, l ? `${l + 1}` : "layer 1"));
      for (let h = 0; h < count; h++) {
        const cell = el("div", { role: "gridcell", "aria-label": `Layer ${l + 1}, head ${h}`, tabindex: -1, "data-layer": l, "data-head": h }, el("canvas", { "aria-hidden": "true" }));
        cells.push(cell);
        row.append(cell);
      }
      rows.push(row);
    }
    grid.replaceChildren(...rows);
    now.layer = Math.min(now.layer, layers - 1);
    now.head = Math.min(now.head, count - 1);
  };
  const cellAt = (l, h) => cells[l * model().heads + h];
  const markCell = () => {
    for (const cell of cells) {
      const chosen = cell === cellAt(now.layer, now.head);
      cell.setAttribute("aria-selected", String(chosen));
      cell.tabIndex = chosen ? 0 : -1;
    }
  };
  const choose = (l, h) => {
    if (l < 0 || h < 0 || l >= model().layers || h >= model().heads) return;
    Object.assign(now, { layer: l, head: h });
    markCell();
    drawHead();
  };
  grid.addEventListener("click", (event) => {
    const cell = event.target.closest("[role=gridcell]");
    if (!cell) return;
    choose(Number(cell.dataset.layer), Number(cell.dataset.head));
    cell.focus({ preventScroll: true });
  });
  grid.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    let to = step && [now.layer + step[0], now.head + step[1]];
    if (event.key === "Home") to = [event.ctrlKey ? 0 : now.layer, 0];
    if (event.key === "End") to = [event.ctrlKey ? model().layers - 1 : now.layer, model().heads - 1];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      maps.querySelector(`canvas[data-term="${CSS.escape(now.term)}"]`)?.focus();
    }
    if (!to) return;
    event.preventDefault();
    choose(...to);
    cellAt(now.layer, now.head).focus({ preventScroll: false });
  });

  let gridRound = 0;
  const drawGrid = async () => {
    const mine = ++gridRound;
    delete host.dataset.grid;
    gridTitle.textContent = `Every head, ${label(now.term)}`;
    const { layers, heads: count, weights } = model();
    let shared = 0;
    if (now.same) {
      for (let l = 0; l < layers; l++) {
        const bytes = await levels(now.term, l);
        if (mine !== gridRound) return;
        for (let h = 0; h < count; h++) shared = Math.max(shared, topOf(head(bytes, h), weights));
      }
    }
    let spent = 0;
    for (let l = 0; l < layers; l++) {
      const bytes = await levels(now.term, l);
      if (mine !== gridRound) return;
      const began = performance.now();
      for (let h = 0; h < count; h++) {
        const cell = cellAt(l, h);
        const side = Math.max(8, Math.floor(cell.clientWidth));
        paint(prepare(cell.firstChild, side, side), thumbnail(head(bytes, h), weights, side, shared), 0, 0, side);
      }
      spent += performance.now() - began;
    }
    scaleNote.textContent = now.same
      ? `Colour goes with the root of the weight; the ${strongest()} is ${number(shared)} or more in every map.`
      : `Colour goes with the root of the weight; each map has its own ${strongest()} colour.`;
    if (size() > cells[0].clientWidth * (devicePixelRatio || 1)) scaleNote.textContent += " A pixel is the mean of several pairs.";
    host.dataset.grid = spent.toFixed(1);
  };
  const strongest = () => (palette() === palettes.dark ? "brightest" : "darkest");

  // ---- The chosen head

  let figures = []; // {term, canvas, map, image, top, box}
  let headRound = 0;
  const drawHead = async () => {
    const mine = ++headRound;
    delete host.dataset.ready;
    const terms = shownTerms();
    const found = await Promise.all(terms.map((t) => levels(t.name, now.layer)));
    if (mine !== headRound) return;
    const began = performance.now();
    const { weights } = model();
    headTitle.textContent = `Layer ${now.layer + 1}, head ${now.head}`;
    const before = document.activeElement?.dataset?.term;
    const held = maps.contains(document.activeElement);
    maps.classList.toggle("single", terms.length === 1);
    const tops = found.map((bytes) => topOf(head(bytes, now.head), weights));
    const shared = now.same ? Math.max(...tops) : 0;
    figures = terms.map((term, i) => {
      const map = head(found[i], now.head);
      const top = shared || tops[i];
      const kept = figures.find((f) => f.term.name === term.name);
      const canvas = kept?.canvas ?? mapCanvas(term);
      canvas.setAttribute("aria-label", `Map of ${term.label} attention, layer ${now.layer + 1}, head ${now.head}. Arrow keys move over queries and keys.`);
      return { term, canvas, map, top, image: bitmap(map, size(), weights, top) };
    });
    const boxes = figures.map((f) => {
      if (f.canvas.parentNode?.classList.contains("ex-map")) {
        f.canvas.parentNode.querySelector(".ex-top").textContent = topWords(f.top);
        return f.canvas.parentNode;
      }
      return mapFigure(f);
    });
    if (boxes.length !== maps.children.length || boxes.some((b, i) => maps.children[i] !== b)) {
      maps.replaceChildren(...boxes);
      if (held) maps.querySelector(before ? `canvas[data-term="${CSS.escape(before)}"]` : "canvas")?.focus();
    }
    if (model().terms.length > 1) for (const f of figures) f.canvas.parentNode.querySelector("button").setAttribute("aria-pressed", String(now.alone === f.term.name));
    markTerm();
    drawMaps();
    drawStrip();
    drawPairs();
    host.dataset.maps = (performance.now() - began).toFixed(1);
    await drawBelow(mine);
    if (mine === headRound) host.dataset.ready = "true";
  };
  const topWords = (top) => `${strongest()}: ${number(top)} or more`;

  const mapCanvas = (term) => {
    const canvas = el("canvas", { tabindex: 0, role: "application", "aria-roledescription": "attention map", "data-term": term.name });
    const point = (event) => {
      const { left, top } = canvas.getBoundingClientRect();
      const { x, y, side } = geometry(canvas);
      const [k, q] = [event.clientX - left - x, event.clientY - top - y].map((v) => Math.floor((v / side) * size()));
      return q >= 0 && k >= 0 && q < size() && k < size() ? [q, k] : null;
    };
    canvas.addEventListener("pointermove", (event) => {
      const at = point(event);
      if (at && !now.pinned) move(...at);
    });
    canvas.addEventListener("click", (event) => {
      const at = point(event);
      if (!at) return;
      now.pinned = !now.pinned;
      move(...at);
      if (term.name !== now.term) setTerm(term.name);
    });
    canvas.addEventListener("keydown", (event) => {
      const far = event.shiftKey ? 10 : 1;
      const step = { ArrowLeft: [0, -far], ArrowRight: [0, far], ArrowUp: [-far, 0], ArrowDown: [far, 0], PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -size()], End: [0, size()] }[event.key];
      if (event.key === "Escape") {
        now.pinned = false;
        cellAt(now.layer, now.head).focus();
      }
      if (!step) return;
      event.preventDefault();
      const within = (v) => Math.min(size() - 1, Math.max(0, v));
      move(within(now.query + step[0]), within(now.key + step[1]));
      live.textContent = readout.textContent;
    });
    return canvas;
  };
  const mapFigure = ({ term, canvas, top }) => {
    const box = el("figure", { class: "ex-map" });
    const name = el("span", { class: "ex-name", style: `color:var(--ink-${term.colour})` }, term.label);
    const caption = el("figcaption", {}, name, el("span", { class: "note ex-top" }, topWords(top)));
    if (model().terms.length > 1) {
      const alone = el("button", { type: "button", "aria-label": `${term.label} alone, larger` }, "larger");
      alone.addEventListener("click", () => {
        now.alone = now.alone ? null : term.name;
        drawHead();
      });
      caption.append(alone);
    }
    box.append(caption, canvas);
    return box;
  };

  // Room for the labels: that of the longest token of the text, up to a quarter of the figure.
  let longest = 96;
  const measure = () => {
    const context = el("canvas").getContext("2d");
    context.font = `600 ${FONT}`;
    longest = 12 + Math.max(...text().tokens.map((token) => context.measureText(short(token, 24)).width));
  };
  const geometry = (canvas) => {
    const width = Math.min(canvas.parentNode.clientWidth, 860);
    const gutter = Math.round(Math.min(110, width * 0.26, longest));
    return { width, gutter, x: gutter, y: 2, side: width - gutter - 2 };
  };
  const fit = (context, token, room) => {
    let cut = short(token, 24);
    while (cut.length > 1 && context.measureText(cut).width > room) cut = `${[...cut].slice(0, -2).join("")}…`;
    return cut;
  };
  const drawMaps = () => {
    const colours = palette();
    const n = size();
    const { tokens } = text();
    for (const { canvas, image } of figures) {
      const { width, gutter, x, y, side } = geometry(canvas);
      const context = prepare(canvas, width, side + gutter + 4);
      const cell = side / n;
      paint(context, image, x, y, side);
      context.strokeStyle = colours.rule;
      context.lineWidth = 1;
      context.strokeRect(x - 0.5, y - 0.5, side + 1, side + 1);
      context.strokeStyle = colours.text;
      context.globalAlpha = 0.35;
      context.strokeRect(x, y + now.query * cell, side, cell);
      context.strokeRect(x + now.key * cell, y, cell, side);
      context.globalAlpha = 1;
      context.lineWidth = 1.5;
      const seen = Math.max(cell, 5);
      context.strokeRect(x + (now.key + 0.5) * cell - seen / 2, y + (now.query + 0.5) * cell - seen / 2, seen, seen);
      // Labels: as many as fit, and always those of the chosen pair.
      const step = Math.max(1, Math.ceil(LINE / cell));
      context.textBaseline = "middle";
      context.textAlign = "right";
      context.direction = "ltr";
      const inside = (i) => Math.min(side - LINE / 2, Math.max(LINE / 2, (i + 0.5) * cell)); // also in the first and last half line
      const write = (i, chosen, key) => {
        context.font = chosen ? `600 ${FONT}` : FONT;
        context.fillStyle = chosen ? colours.text : colours.muted;
        const words = fit(context, tokens[i], gutter - 8);
        context.save();
        const place = inside(i);
        if (key) context.translate(x + place, y + side + 6);
        else context.translate(x - 6, y + place);
        if (key) context.rotate(-Math.PI / 2);
        context.fillText(words, 0, 0);
        context.restore();
      };
      for (const [chosen, key] of [[now.query, false], [now.key, true]]) {
        for (let i = 0, last = -LINE; i < n; i += step) {
          if (Math.abs(inside(i) - inside(chosen)) < LINE || inside(i) - last < LINE - 0.01) continue;
          write(i, false, key);
          last = inside(i);
        }
        write(chosen, true, key);
      }
    }
  };

  // ---- The pair under the pointer

  let pending = false;
  const move = (query, key) => {
    if (query === now.query && key === now.key) return;
    const row = query !== now.query;
    Object.assign(now, { query, key });
    read();
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      drawMaps();
      shade(row);
    });
  };
  const read = () => {
    const { tokens } = text();
    const { weights } = model();
    const at = now.query * size() + now.key;
    const scores = figures.filter((f) => at < f.map.length).map((f) => [f.term, weights[f.map[at]]]);
    readout.replaceChildren(
      el("span", {}, `query ${now.query} `, el("bdi", {}, short(tokens[now.query])), ` → key ${now.key} `, el("bdi", {}, short(tokens[now.key])), ": "),
      ...scores.map(([term, w], i) => el("span", { "data-term": term.name }, i ? " · " : "", el("span", { style: `color:var(--ink-${term.colour})` }, `${term.label} `), el("b", {}, number(w, weights[1])))),
    );
  };

  let spans = [];
  const drawStrip = () => {
    stripTitle.replaceChildren(`Where the query looks: `, el("span", { class: "note" }, `${label(now.term)}, layer ${now.layer + 1}, head ${now.head}; click a token to make it the query`));
    read();
    shade();
  };
  const buildStrip = () => {
    spans = text().tokens.map((token, i) => el("span", { "data-token": i, title: token.length > 28 ? `token ${i}` : null }, el("bdi", {}, short(token))));
    strip.replaceChildren(...spans.flatMap((s) => [s, " "]));
  };
  const shade = () => {
    const figure = figures.find((f) => f.term.name === now.term) ?? figures[0];
    if (!figure || figure.map.length !== size() ** 2) return;
    const { weights } = model();
    const row = figure.map.subarray(now.query * size(), (now.query + 1) * size());
    const top = weights[row.reduce((a, b) => Math.max(a, b), 1)];
    const [r, g, b] = rgb(palette()[figure.term.colour]);
    spans.forEach((span, i) => {
      span.style.backgroundColor = `rgba(${r},${g},${b},${(0.5 * Math.sqrt(weights[row[i]] / top)).toFixed(3)})`;
      span.className = i === now.query ? "query" : i === now.key ? "key" : "";
    });
  };
  strip.addEventListener("click", (event) => {
    const token = event.target.closest("[data-token]");
    if (!token) return;
    now.pinned = true;
    move(Number(token.dataset.token), now.key);
  });

  const drawPairs = () => {
    const figure = figures.find((f) => f.term.name === now.term) ?? figures[0];
    const { weights } = model();
    const { tokens } = text();
    const n = size();
    const counts = new Uint32Array(256);
    for (const level of figure.map) counts[level]++;
    let least = 256;
    for (let sum = 0; least > 0 && sum < PAIRS; ) sum += counts[--least];
    const best = [];
    for (let i = 0; i < figure.map.length; i++) if (figure.map[i] > least || (figure.map[i] === least && best.length < 50 * PAIRS)) best.push(i);
    best.sort((a, b) => figure.map[b] - figure.map[a] || a - b);
    pairsTitle.textContent = `${figure.term.label} attention, layer ${now.layer + 1}, head ${now.head}`;
    pairs.replaceChildren(
      ...best.slice(0, PAIRS).map((at, i) => {
        const [q, k] = [Math.floor(at / n), at % n];
        const token = (j) => el("td", {}, `${j} `, el("bdi", {}, short(tokens[j])));
        return el("tr", {}, el("td", { class: "n" }, `${i + 1}`), token(q), token(k), el("td", { class: "n" }, number(weights[figure.map[at]], weights[1])));
      }),
    );
  };

  // ---- Over the corpus

  const drawBelow = async (mine) => {
    const { means, profiles, lags, heads: count, terms } = model();
    const parts = [];
    const where = now.layer * count + now.head;
    if (means?.[now.term]) {
      const { bins, chunk, scales } = means[now.term];
      const bytes = await once(`mean ${chunk}`, () => inflate(chunk));
      if (mine !== headRound) return;
      const top = scales[now.layer][now.head];
      const squares = Float32Array.from({ length: 256 }, (_, i) => top * (i / 255) ** 2);
      const canvas = el("canvas", { role: "img", "aria-label": `Mean ${label(now.term)} attention over the corpus in ${bins} bins of positions, largest ${number(top)}.` });
      const caption = el("figcaption", {}, el("span", { class: "ex-name" }, `Mean over the corpus, ${label(now.term)}`), el("span", { class: "note" }, `${bins} bins of positions; ${strongest()}: ${number(top)}`));
      parts.push([el("figure", { class: "ex-mean" }, caption, canvas), () => {
        const side = Math.min(canvas.parentNode.clientWidth, 340);
        paint(prepare(canvas, side, side), bitmap(bytes.subarray(where * bins * bins, (where + 1) * bins * bins), bins, squares, top), 0, 0, side);
      }]);
    }
    if (profiles) {
      const lines = [];
      for (const term of terms) {
        if (profiles[term.name] === undefined) continue;
        const bytes = await once(`profile ${profiles[term.name]}`, () => inflate(profiles[term.name]));
        if (mine !== headRound) return;
        lines.push([term, new Float32Array(bytes.buffer, where * lags.length * 4, lags.length)]);
      }
      const canvas = el("canvas", { role: "img", "aria-label": profileWords(lines, lags) });
      const key = el("span", { class: "note" }, ...lines.flatMap(([term], i) => [i ? " · " : "", el("span", { style: `color:var(--ink-${term.colour})` }, term.label)]));
      parts.push([el("figure", { class: "ex-profile" }, el("figcaption", {}, el("span", { class: "ex-name" }, "Mean weight by distance j − i"), key), canvas), () => drawProfile(canvas, lines, lags)]);
    }
    below.replaceChildren(...parts.map(([box]) => box));
    for (const [, draw] of parts) draw();
  };
  const profileWords = (lines, lags) =>
    `Mean weight by key position minus query position. ${lines.map(([t, v]) => { const i = v.indexOf(Math.max(...v)); return `${t.label}: largest ${number(v[i])} at ${lags[i]}`; }).join("; ")}.`;
  const drawProfile = (canvas, lines, lags) => {
    const colours = palette();
    const width = canvas.parentNode.clientWidth;
    const height = Math.min(340, Math.max(220, width * 0.5));
    const context = prepare(canvas, width, height);
    const [left, right, top, bottom] = [58, 12, 10, 44];
    const most = Math.max(1e-9, ...lines.map(([, v]) => Math.max(...v)));
    const x = (lag) => left + ((lag - lags[0]) / Math.max(1, lags.at(-1) - lags[0])) * (width - left - right);
    const y = (v) => top + (1 - v / most) * (height - top - bottom);
    context.font = FONT;
    context.fillStyle = colours.muted;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const share of [0, 0.5, 1]) {
      context.strokeStyle = share ? colours.grid : colours.rule;
      context.beginPath();
      context.moveTo(left, y(most * share));
      context.lineTo(width - right, y(most * share));
      context.stroke();
      context.fillText(number(most * share), left - 8, y(most * share));
    }
    context.textAlign = "center";
    const end = lags.at(-1);
    for (const lag of width < 420 ? [-end, 0, end] : [-end, -Math.round(end / 2), 0, Math.round(end / 2), end]) {
      context.textAlign = lag === -end ? "left" : lag === end ? "right" : "center";
      context.fillText(String(lag).replace("-", "−"), x(lag), height - bottom + 14);
    }
    context.textAlign = "center";
    context.fillText("key position − query position", (left + width - right) / 2, height - 10);
    for (const [term, values] of lines) {
      context.strokeStyle = colours[term.colour];
      context.lineWidth = term.name === now.term ? 2.5 : 1.4;
      context.beginPath();
      values.forEach((v, i) => context[i ? "lineTo" : "moveTo"](x(lags[i]), y(v)));
      context.stroke();
    }
  };

  // ---- Choices

  const buildTerms = () => {
    const { terms, missing: words } = model();
    missing.textContent = words.replaceAll("`", "");
    missing.hidden = !words;
    termBox.hidden = terms.length < 2;
    termBox.replaceChildren(
      el("legend", { class: "ex-live" }, "Term"),
      ...terms.map((term, i) => {
        const radio = el("input", { type: "radio", name: "ex-term", value: term.name, id: `ex-term-${i}` });
        radio.addEventListener("change", () => setTerm(term.name));
        const name = el("span", { style: `--term:var(--${term.colour})` }, term.label);
        return el("label", { for: `ex-term-${i}` }, radio, name, i < 9 ? el("kbd", { "aria-hidden": "true" }, `${i + 1}`) : "");
      }),
    );
    if (!terms.some((t) => t.name === now.term)) now.term = terms[0].name;
    if (!terms.some((t) => t.name === now.alone)) now.alone = null;
  };
  const markTerm = () => {
    for (const radio of termBox.querySelectorAll("input")) radio.checked = radio.value === now.term;
    for (const f of figures) f.canvas.parentNode?.classList.toggle("chosen", f.term.name === now.term && figures.length > 1);
    host.dataset.term = now.term;
  };
  const setTerm = (name) => {
    now.term = name;
    if (now.alone) now.alone = name;
    markTerm();
    drawGrid();
    drawHead();
  };
  const showText = () => {
    cache.clear();
    figures = [];
    maps.replaceChildren();
    Object.assign(now, { query: Math.min(now.query, size() - 1), key: Math.min(now.key, size() - 1), pinned: false });
    const count = model().texts.length;
    slider.max = count - 1;
    slider.value = now.text;
    slider.hidden = count < 2;
    const words = `${count > 1 ? `${now.text + 1} of ${count}: ` : ""}${short(text().title, 60)}, ${size()} tokens`;
    textName.textContent = words;
    slider.setAttribute("aria-valuetext", words);
    buildStrip();
    measure();
    drawGrid();
    drawHead();
  };
  const showModel = () => {
    now.text = Math.min(now.text, model().texts.length - 1);
    buildTerms();
    buildGrid();
    markCell();
    showText();
  };
  modelSelect.addEventListener("change", () => {
    now.model = Number(modelSelect.value);
    showModel();
  });
  slider.addEventListener("input", () => {
    now.text = Number(slider.value);
    showText();
  });
  sameBox.addEventListener("change", () => {
    now.same = sameBox.checked;
    redraw();
  });
  // One digit is a term, wherever the focus is inside the explorer.
  host.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
    const term = model().terms[Number(event.key) - 1];
    if (/^[1-9]$/.test(event.key) && term) setTerm(term.name);
  });

  // ---- Theme, width, paper

  const redraw = () => {
    drawGrid();
    drawHead();
  };
  new MutationObserver(redraw).observe(root, { attributes: true, attributeFilter: ["data-theme", "class"] });
  dark.addEventListener("change", redraw);
  let width = host.clientWidth;
  new ResizeObserver(() => {
    if (host.clientWidth === width) return;
    width = host.clientWidth;
    redraw();
  }).observe(host);

  const first = model().texts[0].tokens.length;
  Object.assign(now, { query: Math.floor(first / 2), key: Math.floor(first / 2), term: model().terms.at(-1).name });
  showModel();
})();
