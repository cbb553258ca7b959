(function () {
"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement, $ = (id) => document.getElementById(id);
const GUTTER = 128, K = D.kinds, PROGRAM = (k) => k <= K.indexOf("noticing"); // computing, kept or not

// --- the data, unpacked: per row the stretches of its tracks, sorted by time ---
function unpack(flat) {
  const n = flat.length / 6, s = { k: new Uint8Array(n), a: new Float64Array(n), b: new Float64Array(n), e: new Float64Array(n), o: new Uint8Array(n), y: new Float64Array(n), max: 0 };
  let t = 0;
  for (let i = 0, j = 0; i < n; i++, j += 6) {
    t += flat[j + 1];
    s.k[i] = flat[j]; s.a[i] = t; s.b[i] = t + flat[j + 2]; s.e[i] = flat[j + 3]; s.o[i] = flat[j + 4]; s.y[i] = flat[j + 5];
    if (flat[j + 2] > s.max) s.max = flat[j + 2];
  }
  return s;
}
const rows = D.rows.map((r) => ({ rank: r.rank, node: r.node, tracks: [], marks: [] }));
for (const l of D.tracks) rows[l.row].tracks.push({ run: l.run, node: l.node, main: unpack(l.main), behind: unpack(l.behind), texts: l.texts || {}, mainTexts: l.main_texts || {} });
for (const m of D.instants) if (rows[m.row]) rows[m.row].marks.push(m);
const END = Math.max(D.end, 1);

// --- formats ---
function dur(us) {
  const s = Math.abs(us) / 1e6;
  if (s < 1e-3) return Math.round(us) + " µs";
  if (s < 1) return +(us / 1e3).toPrecision(3) + " ms";
  if (s < 120) return +(us / 1e6).toPrecision(3) + " s";
  if (s < 7200) return Math.floor(s / 60) + " min " + Math.round(s % 60) + " s";
  if (s < 172800) return Math.floor(s / 3600) + " h " + Math.round(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.round(s % 86400 / 3600) + " h";
}
function size(n) {
  if (n < 1024) return n + " B";
  let u = -1;
  do { n /= 1024; u++; } while (n >= 1023.5 && u < 5);
  return n.toFixed(n < 99.5 ? 1 : 0) + " " + "KMGTPE"[u] + "iB";
}
function clock(us, parts) {
  const d = new Date(D.t0 + us / 1000), p = (n, w) => String(n).padStart(w || 2, "0");
  let s = p(d.getUTCHours()) + ":" + p(d.getUTCMinutes()) + ":" + p(d.getUTCSeconds());
  if (parts) s += "." + p(d.getUTCMilliseconds(), 3);
  if (END > 86400e6) s = d.getUTCFullYear() + "-" + p(d.getUTCMonth() + 1) + "-" + p(d.getUTCDate()) + " " + s;
  return s;
}

// --- colours come from the style sheet, so that the theme has one source ---
let C = {};
function colours() {
  const st = getComputedStyle(root);
  C = {};
  for (const n of ["bg", "card", "ink", "soft", "line", "grid", "accent", "bad", "dead"].concat(K)) C[n] = st.getPropertyValue("--" + n).trim();
  C.kind = K.map((n) => C[n]);
}

// --- rows shown: ranks, or nodes that open ---
const byNode = new Map();
rows.forEach((r, i) => { if (!byNode.has(r.node)) byNode.set(r.node, []); byNode.get(r.node).push(i); });
let grouped = byNode.size > 1 && rows.length > 64 && byNode.size < rows.length;
const openNodes = new Set();
let items = [], height = 0, rowH = rows.length <= 8 ? 38 : rows.length <= 24 ? 26 : rows.length <= 80 ? 16 : 10;
function layout() {
  items = [];
  let y = 0;
  const push = (it, h) => { it.y = y; it.h = h; items.push(it); y += h; };
  if (grouped) {
    for (const [node, list] of byNode) {
      push({ node: node, list: list, open: openNodes.has(node) }, Math.max(22, rowH));
      if (openNodes.has(node)) for (const i of list) push({ row: i }, rowH);
    }
  } else rows.forEach((_, i) => push({ row: i }, rowH));
  height = y;
  root.dataset.rows = items.length;
  $("group").setAttribute("aria-pressed", String(grouped));
}
if (byNode.size < 2 || byNode.size === rows.length) $("group").hidden = true;

// --- the view ---
const pad = END * 0.004;
let v0 = -pad, v1 = END + pad;
function view(a, b) {
  const least = 20, w = Math.min(Math.max(b - a, least), END * 1.2 + 2 * pad), c = (a + b) / 2;
  v0 = c - w / 2; v1 = c + w / 2;
  if (v0 < -pad - w * 0.5) { v0 = -pad - w * 0.5; v1 = v0 + w; }
  if (v1 > END + pad + w * 0.5) { v1 = END + pad + w * 0.5; v0 = v1 - w; }
  paint();
}
const everything = () => view(-pad, END + pad);
function zoom(f, at) { const w = (v1 - v0) * f, q = (at - v0) / (v1 - v0); view(at - q * w, at - q * w + w); }

// --- drawing ---
function fitCanvas(c, h) {
  const w = c.clientWidth, r = window.devicePixelRatio || 1;
  if (c.width !== Math.round(w * r) || c.height !== Math.round(h * r)) { c.width = Math.round(w * r); c.height = Math.round(h * r); c.style.height = h + "px"; }
  const g = c.getContext("2d");
  g.setTransform(r, 0, 0, r, 0, 0);
  g.clearRect(0, 0, w, h);
  return g;
}
function firstAfter(arr, t) { let lo = 0, hi = arr.length; while (lo < hi) { const m = (lo + hi) >> 1; if (arr[m] < t) lo = m + 1; else hi = m; } return lo; }

// drawTrack draws the stretches that the view touches. What stops the program is
// at least a pixel wide.
function drawTrack(g, s, y, h, t0, t1, x0, w) {
  const px = w / (t1 - t0), from = firstAfter(s.a, t0 - s.max);
  for (let pass = 0; pass < 2; pass++) {
    for (let i = from; i < s.a.length && s.a[i] <= t1; i++) {
      if (s.b[i] < t0 || PROGRAM(s.k[i]) !== (pass === 0)) continue;
      const a = Math.max(x0, x0 + (s.a[i] - t0) * px), b = Math.min(x0 + w, x0 + (s.b[i] - t0) * px);
      g.fillStyle = C.kind[s.k[i]];
      const wide = Math.max(b - a, pass ? 1.4 : 0.5);
      g.fillRect(a, y, wide, h);
      if (s.o[i] && b - a > 6) { // it was never seen to end
        g.fillStyle = C.card;
        for (let x = b - 3; x > Math.max(a, b - 24); x -= 6) g.fillRect(x, y, 2, h);
      }
    }
  }
}

// crowded says whether checkpoints are so close in a view that stretches of a pixel
// each would hide the program.
function crowded(t0, t1, w) {
  let n = 0;
  for (const e of D.epochs) n += e.to >= t0 && e.from <= t1;
  return n > w / 12;
}

// density draws what share of some ranks did what, column by column, in one of
// their tracks; what stops the program is drawn larger than it is unless exact.
function density(g, list, track, y, h, t0, t1, x0, w, exact) {
  const cols = Math.max(1, Math.floor(w)), acc = new Float32Array(cols * K.length), px = cols / (t1 - t0);
  for (const i of list) for (const l of rows[i].tracks) {
    const s = l[track];
    for (let j = firstAfter(s.a, t0 - s.max); j < s.a.length && s.a[j] <= t1; j++) {
      if (s.b[j] < t0) continue;
      let a = Math.max(0, (s.a[j] - t0) * px), b = Math.min(cols, (s.b[j] - t0) * px);
      if (!exact && !PROGRAM(s.k[j]) && b - a < 1) { a = Math.min(Math.floor(a), cols - 1); b = a + 1; }
      for (let x = Math.floor(a); x < b && x < cols; x++) acc[x * K.length + s.k[j]] += (Math.min(b, x + 1) - Math.max(a, x)) * (exact || PROGRAM(s.k[j]) ? 1 : 3);
    }
  }
  for (let x = 0; x < cols; x++) {
    let sum = 0;
    for (let k = 0; k < K.length; k++) sum += acc[x * K.length + k];
    if (sum <= 0) continue;
    let yy = y + h;
    const scale = h / (track === "main" && sum > 0.6 * list.length ? sum : Math.max(sum, list.length));
    for (let k = 0; k < K.length; k++) {
      const hh = acc[x * K.length + k] * scale;
      if (hh <= 0) continue;
      g.fillStyle = C.kind[k];
      yy -= hh;
      g.fillRect(x0 + x, yy, 1.02, hh);
    }
  }
}

let hatch = null;
function hatching(g) {
  const p = document.createElement("canvas");
  p.width = p.height = 8;
  const q = p.getContext("2d");
  q.fillStyle = C.dead; q.fillRect(0, 0, 8, 8);
  q.strokeStyle = C.line; q.lineWidth = 2;
  q.beginPath(); q.moveTo(-2, 10); q.lineTo(10, -2); q.moveTo(-2, 2); q.lineTo(2, -2); q.moveTo(6, 10); q.lineTo(10, 6); q.stroke();
  return g.createPattern(p, "repeat");
}
function dead(g, y, h, t0, t1, x0, w) {
  const px = w / (t1 - t0);
  for (let i = 1; i < D.runs.length; i++) {
    const a = D.runs[i - 1].e, b = D.runs[i].b;
    if (b <= t0 || a >= t1 || b <= a) continue;
    g.fillStyle = hatch || (hatch = hatching(g));
    const xa = Math.max(x0, x0 + (a - t0) * px), xb = Math.min(x0 + w, x0 + (b - t0) * px);
    g.fillRect(xa, y, Math.max(1, xb - xa), h);
  }
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500].flatMap((n) => [n, n * 1e3]).concat([1, 2, 5, 10, 15, 30].flatMap((n) => [n * 1e6, n * 6e7]), [1, 2, 3, 6, 12].map((n) => n * 3.6e9), [1, 2, 7, 14, 28].map((n) => n * 8.64e10)).sort((a, b) => a - b);
function tick(us, step) {
  if (step < 1e3) return us + " µs";
  if (step < 1e6) return (us / 1e6).toFixed(step < 1e4 ? 3 : step < 1e5 ? 2 : 1) + " s";
  const s = Math.round(us / 1e6), p = (n) => String(n).padStart(2, "0");
  if (END < 120e6) return s + " s";
  const d = Math.floor(s / 86400), rest = Math.floor(s % 86400 / 3600) + ":" + p(Math.floor(s % 3600 / 60)) + (step < 6e7 || END < 36e8 ? ":" + p(s % 60) : "");
  return (d ? d + " d " : "") + rest;
}
function ticks(x0, w, f) {
  const want = (v1 - v0) / Math.max(w / 96, 1), step = STEPS.find((s) => s >= want) || STEPS[STEPS.length - 1];
  for (let t = Math.ceil(v0 / step) * step; t <= v1; t += step) f(x0 + (t - v0) / (v1 - v0) * w, t, step);
}
// inside writes a text centred at x, but whole.
function inside(g, text, x, y, x0, w) {
  const half = g.measureText(text).width / 2 + 1;
  g.fillText(text, Math.min(Math.max(x, x0 + half), x0 + w - half), y);
}
function drawAxis() {
  const c = $("axis"), g = fitCanvas(c, 34), w = c.clientWidth - GUTTER, px = w / (v1 - v0);
  g.font = "11px system-ui, sans-serif"; g.textBaseline = "middle";
  g.fillStyle = C.soft; g.textAlign = "left";
  g.fillText("since the first start", 4, 25);
  g.save(); g.beginPath(); g.rect(GUTTER, 0, w, 34); g.clip();
  g.textAlign = "center";
  ticks(GUTTER, w, (x, t, step) => { g.fillStyle = C.soft; inside(g, tick(t, step), x, 25, GUTTER, w); g.fillStyle = C.line; g.fillRect(x, 31, 1, 3); });
  let free = -1e9;
  for (const e of D.epochs) { // numbers of epochs, as many as there is room for
    const x = GUTTER + ((e.cut || e.from) - v0) * px;
    if (x < GUTTER || x > GUTTER + w || x < free) continue;
    g.fillStyle = e.failed ? C.bad : C.ink;
    const label = (e.failed ? "✕ " : "◆ ") + e.n;
    inside(g, label, x, 9, GUTTER, w);
    free = x + g.measureText(label).width + 10;
  }
  g.restore();
}
function drawMini() {
  const c = $("mini"), h = 38, g = fitCanvas(c, h), w = c.clientWidth;
  const all = miniRows();
  if (!drawMini.cache || drawMini.w !== w || drawMini.theme !== root.dataset.theme) {
    const r = window.devicePixelRatio || 1, off = document.createElement("canvas");
    off.width = w * r; off.height = h * r;
    const q = off.getContext("2d");
    q.scale(r, r);
    dead(q, 0, h, -pad, END + pad, 0, w);
    density(q, all, "main", 0, h, -pad, END + pad, 0, w, crowded(-pad, END + pad, w));
    drawMini.cache = off; drawMini.w = w; drawMini.theme = root.dataset.theme;
  }
  g.drawImage(drawMini.cache, 0, 0, w, h);
  const px = w / (END + 2 * pad), a = (v0 + pad) * px, b = (v1 + pad) * px;
  g.globalAlpha = 0.55; g.fillStyle = C.card;
  g.fillRect(0, 0, Math.max(0, a), h); g.fillRect(b, 0, Math.max(0, w - b), h);
  g.globalAlpha = 1; g.strokeStyle = C.accent; g.lineWidth = 1.5;
  g.strokeRect(Math.max(0.75, a), 0.75, Math.min(w - 1.5, Math.max(2, b - a)), h - 1.5);
}
function miniRows() { // a sample is enough for an overview of many ranks
  const step = Math.ceil(rows.length / 200), out = [];
  for (let i = 0; i < rows.length; i += step) out.push(i);
  return out;
}
const MARKS = { request: ["▼", "accent"], commit: ["◆", "ink"], giveup: ["✕", "bad"], error: ["✕", "bad"] };
function drawRows() {
  const box = $("scroll"), c = $("rows"), visible = Math.min(height, 600), top = Math.min(box.scrollTop, Math.max(0, height - visible));
  $("spacer").style.height = Math.max(0, height - visible) + "px";
  const g = fitCanvas(c, visible), w = c.clientWidth - GUTTER, px = w / (v1 - v0);
  g.save(); g.beginPath(); g.rect(GUTTER, 0, w, visible); g.clip();
  ticks(GUTTER, w, (x) => { g.fillStyle = C.grid; g.fillRect(x, 0, 1, visible); });
  dead(g, 0, visible, v0, v1, GUTTER, w);
  g.restore();
  g.font = "11.5px system-ui, sans-serif"; g.textBaseline = "middle";
  let free = -1e9;
  const exact = crowded(v0, v1, w);
  for (const it of items) {
    const y = it.y - top;
    if (y + it.h < 0 || y > visible) continue;
    g.save(); g.beginPath(); g.rect(GUTTER, y, w, it.h); g.clip();
    if (it.list) {
      density(g, it.list, "main", y + 1.5, it.h - 9, v0, v1, GUTTER, w, exact);
      density(g, it.list, "behind", y + it.h - 6.5, 5, v0, v1, GUTTER, w, exact);
    }
    else drawRank(g, it.row, y, it.h, w, px, exact);
    g.restore();
    if (y + it.h / 2 - free < 11) continue; // no room for a label
    g.textAlign = "left"; g.fillStyle = it.list ? C.ink : C.soft;
    const label = it.list ? (it.open ? "▾ " : "▸ ") + it.node + " (" + it.list.length + ")" : "rank " + rows[it.row].rank + (byNode.size > 1 && !grouped ? " · " + rows[it.row].node : "");
    g.save(); g.beginPath(); g.rect(0, y, GUTTER - 6, Math.max(it.h, 12)); g.clip();
    g.fillText(label, it.list || !grouped ? 6 : 18, y + it.h / 2);
    g.restore();
    free = y + it.h / 2;
  }
}
function drawRank(g, row, y, h, w, px, exact) {
  const r = rows[row], gap = h > 8 ? 2 : h > 4 ? 1 : 0, two = h >= 10, mh = two ? Math.round((h - gap) * 0.6) : h - gap;
  const draw = (track, y, h) => {
    if (exact) density(g, [row], track, y, h, v0, v1, GUTTER, w, true);
    else for (const l of r.tracks) drawTrack(g, l[track], y, h, v0, v1, GUTTER, w);
  };
  draw("main", y + gap / 2, mh);
  if (two) draw("behind", y + gap / 2 + mh + 1, h - gap - mh - 1);
  if (h < 14) return;
  g.font = "9px system-ui, sans-serif"; g.textAlign = "center";
  let free = {};
  for (const m of r.marks) {
    const x = GUTTER + (m.at - v0) * px;
    if (x < GUTTER - 8 || x > GUTTER + w + 8 || x < (free[m.what] || -1e9)) continue;
    g.fillStyle = C[MARKS[m.what][1]];
    g.fillText(MARKS[m.what][0], x, y + gap / 2 + (m.what === "commit" ? h - gap - 5 : mh / 2));
    free[m.what] = x + 7;
  }
  g.font = "11.5px system-ui, sans-serif";
}
let queued = false;
function paint() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(() => { queued = false; drawMini(); drawAxis(); drawRows(); });
}

// --- pointing ---
function itemAt(y) { let lo = 0, hi = items.length; while (lo < hi) { const m = (lo + hi) >> 1; if (items[m].y + items[m].h <= y) lo = m + 1; else hi = m; } return items[lo]; }
function hits(s, a, b, most) {
  const out = [];
  for (let i = firstAfter(s.a, a - s.max); i < s.a.length && s.a[i] <= b && out.length < 200; i++) if (s.b[i] >= a) out.push(i);
  out.sort((p, q) => (s.k[p] === 0) - (s.k[q] === 0) || s.a[p] - s.a[q]);
  return out.slice(0, most);
}
function line(tip, colour, text) {
  const d = document.createElement("div");
  d.className = "r";
  const sw = document.createElement("span");
  sw.className = "sw"; sw.style.background = colour;
  const t = document.createElement("span");
  t.textContent = text;
  d.append(sw, t);
  tip.append(d);
}
const SAY = { computing: "computing", lost: "computed, then lost", noticing: "a rank died, not yet noticed", starting: "starting", restoring: "restoring", parked: "parked at a Point", draining: "draining messages", capturing: "capturing", held: "waiting for its write", stopping: "final checkpoint", ending: "done", writing: "writing in the background", voting: "waiting for all votes", redundancy: "writing copies or parity", flushing: "flushing to global" };
function describe(s, i, texts) {
  const k = K[s.k[i]];
  let t = SAY[k] + (s.e[i] ? ", epoch " + s.e[i] : "") + ": " + dur(s.b[i] - s.a[i]);
  if (s.y[i]) t += ", " + size(s.y[i]) + (s.b[i] - s.a[i] > 1000 ? " (" + size(Math.round(s.y[i] / (s.b[i] - s.a[i]) * 1e6)) + "/s)" : "");
  if (s.o[i]) t += ", never seen to end";
  if (texts[i]) t += ", " + texts[i];
  return t + " · from " + clock(s.a[i], true);
}
function tipFor(it, t, near) {
  const tip = $("tip");
  tip.textContent = "";
  const h = document.createElement("div");
  h.className = "h";
  tip.append(h);
  if (it.list) {
    h.textContent = it.node + ", " + it.list.length + " ranks · " + clock(t, true);
    const n = new Map();
    for (const i of it.list) for (const l of rows[i].tracks) { const q = hits(l.main, t - near, t + near, 1)[0]; if (q !== undefined) n.set(l.main.k[q], (n.get(l.main.k[q]) || 0) + 1); }
    for (const [k, c] of [...n].sort((a, b) => b[1] - a[1])) line(tip, C.kind[k], c + " " + SAY[K[k]]);
    line(tip, "transparent", "click to " + (it.open ? "close" : "open"));
    return;
  }
  const r = rows[it.row];
  h.textContent = "rank " + r.rank + " · " + clock(t, true);
  let any = false;
  for (const l of r.tracks) {
    const a = hits(l.main, t - near, t + near, 4), b = hits(l.behind, t - near, t + near, 4);
    if (a.length + b.length === 0) continue;
    any = true;
    h.textContent = "rank " + r.rank + " on " + l.node + ", start " + l.run + " · " + clock(t, true);
    for (const i of a) line(tip, C.kind[l.main.k[i]], describe(l.main, i, l.mainTexts));
    for (const i of b) line(tip, C.kind[l.behind.k[i]], describe(l.behind, i, l.texts));
  }
  for (const m of r.marks) if (Math.abs(m.at - t) <= near * 2.5) line(tip, C[MARKS[m.what][1]], (m.what === "commit" ? "epoch " + m.epoch + " committed at " + m.text : m.what === "request" ? "checkpoint requested by " + m.text : m.text) + " · " + clock(m.at, true));
  if (!any && tip.childNodes.length === 1) line(tip, C.dead, "not running");
}
function place(e) {
  const tip = $("tip"), w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(4, e.clientX + 16 + w > innerWidth ? e.clientX - w - 12 : e.clientX + 16) + "px";
  tip.style.top = Math.max(4, e.clientY + 18 + h > innerHeight ? e.clientY - h - 12 : e.clientY + 18) + "px";
}
function timeAt(e) { const b = $("rows").getBoundingClientRect(); return v0 + (e.clientX - b.left - GUTTER) / (b.width - GUTTER) * (v1 - v0); }
function rowAt(e) { const b = $("rows").getBoundingClientRect(); return itemAt(e.clientY - b.top + Math.min($("scroll").scrollTop, Math.max(0, height - b.height))); }
let drag = null;
const R = $("rows");
R.addEventListener("pointerdown", (e) => { drag = { x: e.clientX, a: v0, b: v1, moved: false }; R.setPointerCapture(e.pointerId); });
R.addEventListener("pointermove", (e) => {
  const w = R.clientWidth - GUTTER;
  if (drag) {
    const d = (e.clientX - drag.x) / w * (drag.b - drag.a);
    if (Math.abs(e.clientX - drag.x) > 3) { drag.moved = true; R.classList.add("drag"); }
    if (drag.moved) { $("tip").style.display = "none"; view(drag.a - d, drag.b - d); }
    return;
  }
  const it = rowAt(e);
  if (!it) return;
  tipFor(it, timeAt(e), 2 * (v1 - v0) / w);
  $("tip").style.display = "block";
  place(e);
});
R.addEventListener("pointerup", (e) => {
  R.classList.remove("drag");
  const it = rowAt(e);
  if (drag && !drag.moved && it && it.list) {
    if (openNodes.has(it.node)) openNodes.delete(it.node); else openNodes.add(it.node);
    layout(); paint();
  }
  drag = null;
});
R.addEventListener("pointerleave", () => { $("tip").style.display = "none"; });
R.addEventListener("dblclick", (e) => zoom(0.25, timeAt(e)));
R.addEventListener("wheel", (e) => {
  if (e.ctrlKey || e.metaKey) { e.preventDefault(); zoom(Math.pow(1.0025, e.deltaY), timeAt(e)); return; }
  const dx = e.shiftKey ? e.deltaY : e.deltaX;
  if (Math.abs(dx) > Math.abs(e.shiftKey ? 0 : e.deltaY)) { e.preventDefault(); const d = dx / (R.clientWidth - GUTTER) * (v1 - v0); view(v0 + d, v1 + d); }
}, { passive: false });
R.addEventListener("keydown", (e) => {
  const w = v1 - v0, c = (v0 + v1) / 2, f = { ArrowLeft: () => view(v0 - w / 5, v1 - w / 5), ArrowRight: () => view(v0 + w / 5, v1 + w / 5), "+": () => zoom(0.6, c), "=": () => zoom(0.6, c), "-": () => zoom(1 / 0.6, c), Home: everything, n: () => step(1), p: () => step(-1) }[e.key];
  if (f) { e.preventDefault(); f(); }
});
$("scroll").addEventListener("scroll", paint);

// The overview selects a time.
const M = $("mini");
let brush = null;
const miniTime = (e) => { const b = M.getBoundingClientRect(); return (e.clientX - b.left) / b.width * (END + 2 * pad) - pad; };
M.addEventListener("pointerdown", (e) => { brush = miniTime(e); M.setPointerCapture(e.pointerId); });
M.addEventListener("pointermove", (e) => { if (brush !== null) { const t = miniTime(e); view(Math.min(brush, t), Math.max(brush, t)); } });
M.addEventListener("pointerup", (e) => { const t = miniTime(e), w = Math.min(v1 - v0, END); if (brush !== null && Math.abs(t - brush) < END / 400) view(t - w / 2, t + w / 2); brush = null; });

// --- buttons and tables ---
function around(a, b) { const w = Math.max(b - a, 200); view(a - w * 0.12, b + w * 0.12); }
function step(d) {
  const c = (v0 + v1) / 2, list = D.epochs.map((e) => [e, (e.from + e.to) / 2]), tol = (v1 - v0) * 0.01;
  const q = d > 0 ? list.find((x) => x[1] > c + tol) : list.reverse().find((x) => x[1] < c - tol);
  if (q) around(q[0].from, q[0].to);
}
$("fit").onclick = everything;
$("zin").onclick = () => zoom(0.5, (v0 + v1) / 2);
$("zout").onclick = () => zoom(2, (v0 + v1) / 2);
$("next").onclick = () => step(1);
$("prev").onclick = () => step(-1);
$("group").onclick = () => { grouped = !grouped; layout(); paint(); };
$("less").onclick = () => { rowH = Math.max(2, Math.round(rowH / 1.5)); layout(); paint(); };
$("more").onclick = () => { rowH = Math.min(60, Math.round(rowH * 1.5)); layout(); paint(); };
function theme(t) { root.dataset.theme = t; colours(); hatch = null; }
$("theme").onclick = () => {
  theme(root.dataset.theme === "dark" ? "light" : "dark");
  try { localStorage.setItem("holdfast-theme", root.dataset.theme); } catch (e) { /* a page without storage forgets it */ }
  paint();
};
let onScreen = "";
const drawNow = () => { drawMini(); drawAxis(); drawRows(); };
addEventListener("beforeprint", () => { // paper is white
  onScreen = root.dataset.theme; theme("light"); $("tip").style.display = "none"; drawNow();
  for (const d of document.querySelectorAll("details")) if (rows.length <= 256) d.open = true;
});
addEventListener("afterprint", () => { theme(onScreen); drawNow(); });
for (const tr of document.querySelectorAll("tr.go")) {
  const go = () => { around(+tr.dataset.from, +tr.dataset.to); $("timeline").scrollIntoView({ behavior: "smooth", block: "start" }); };
  tr.addEventListener("click", go);
  tr.addEventListener("keydown", (e) => { if (e.key === "Enter") go(); });
}
addEventListener("resize", paint);
colours(); layout();
const at = /[#&]epoch=(\d+)/.exec(location.hash), wanted = at && D.epochs.find((e) => e.n === +at[1]);
if (wanted) around(wanted.from, wanted.to); else everything();
drawNow();
root.dataset.ready = "yes";
})();
