// Line charts and histograms: uPlot (uplot/, MIT) draws them, and this file says what.

// What the reader chose for all line charts of the page.
const CHOSEN = { smoothing: 0, isLog: false, x: "step" };
// uPlot draws on a canvas, which knows nothing of the page's colours: a change of scheme draws again.
const DRAWN = new Set();
const HEIGHT = 220, MAX_DOTS = 30;

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

function repaint() {
  for (const plot of DRAWN) plot.redraw(false);
}

function setTheme(theme) {
  fill(document.documentElement, { "data-theme": theme }, []);
  repaint();
}

// A colour for one of several series: eight that are told apart at once, then hues far from each other.
function colourOf(i, count) {
  if (count <= 8) return `var(--s${i})`;
  const hue = (i * 137.5) % 360;
  return `light-dark(oklch(${0.48 + 0.06 * (i % 3)} 0.16 ${hue}), oklch(${0.7 + 0.06 * (i % 3)} 0.14 ${hue}))`;
}

// A colour of the style sheet in words that a canvas reads.
function ink(colour, percent = 100) {
  const probe = byId("ink");
  probe.style.color = percent === 100 ? colour : `color-mix(in srgb, ${colour} ${percent}%, transparent)`;
  return getComputedStyle(probe).color;
}

function swatch(colour, ...children) {
  const key = el("span", { class: "key" }, ...children);
  key.style.setProperty("--key", colour);
  return key;
}

// Exponential moving average in which the first values weigh no more than the later ones.
function smoothed(values, weight) {
  let sum = 0, total = 0;
  return values.map((value) => {
    if (!isNumber(value)) return value;
    sum = weight * sum + value;
    total = weight * total + 1;
    return sum / total;
  });
}

const AXES = {
  step: ["train step", (x) => String(x)], answer: ["answer", (x) => String(x)],
  tokens: ["sampled tokens", (x) => (x >= 1e6 ? `${short(x / 1e6)} M` : x >= 1e3 ? `${short(x / 1e3)} k` : short(x))],
  time: ["minutes", (x) => short(x / 60)],
};

// series: [{ name, points: [{ x, y, low?, high? }], colour?, isDashed? }], x ascending. range: fixed
// [low, high] of y; axis: what x counts, a name of AXES.
function lineChart(title, series, { range, format = short, description = "", axis = "step" } = {}) {
  const shown = series.map((s, i) => ({ ...s, colour: s.colour ?? colourOf(i, series.length), points: s.points.filter((p) => isNumber(p.y)) }))
    .filter((s) => s.points.length);
  const isLog = CHOSEN.isLog && !range, plotted = isLog ? (v) => (v > 0 ? v : null) : (v) => (isNumber(v) ? v : null);
  const hidden = { stroke: null, width: 0, points: { show: false }, spanGaps: true };
  const lines = [{}], bands = [], tables = [];
  for (const s of shown) {
    const { points } = s, paint = (percent) => () => ink(s.colour, percent), columns = [points.map((p) => p.x)];
    const add = (values, line) => { columns.push(values.map(plotted)); return lines.push({ spanGaps: true, ...line }) - 1; };
    const values = points.map((p) => p.y);
    if (CHOSEN.smoothing && shown.length <= 8) add(values, { stroke: paint(30), width: 1, points: { show: false } });
    s.at = add(smoothed(values, CHOSEN.smoothing), { stroke: paint(100), width: 2, dash: s.isDashed ? [6, 4] : [],
      points: { show: points.length <= MAX_DOTS, size: 6, fill: paint(100) } });
    if (points.some((p) => isNumber(p.low))) {
      s.ends = [add(points.map((p) => p.high), hidden), add(points.map((p) => p.low), hidden)];
      bands.push({ series: s.ends, fill: paint(15) });
    }
    tables.push(columns);
  }
  const data = tables.length > 1 ? uPlot.join(tables) : tables[0];
  const [unit, place] = AXES[axis];
  const reading = (plot, s, idx) => {
    let at = idx ?? data[0].length - 1;
    while (at > 0 && !isNumber(plot.data[s.at][at])) at--;
    const [high, low] = (s.ends ?? []).map((i) => plot.data[i][at]), value = plot.data[s.at][at];
    return isNumber(value) ? format(value) + (isNumber(low) ? ` (${format(low)} to ${format(high)})` : "") : "";
  };
  return plotIn(title, shown, data, {
    series: lines, bands, cursor: { sync: { key: unit } }, scales: { x: { time: false }, y: range ? { range } : { distr: isLog ? 3 : 1 } },
    axes: [{ values: (_, marks) => marks.map(place), incrs: unit === "step" || unit === "answer" ? WHOLE : undefined },
      { values: (_, marks) => marks.map((v) => (v === null ? "" : format(v).replace(/\.0(?= %$)/, ""))) }],
  }, { reading, placeOf: (idx) => `${unit} ${place(data[0][idx ?? data[0].length - 1])}`, description });
}

const WHOLE = [1, 2, 5].flatMap((m) => [...Array(9).keys()].map((power) => m * 10 ** power)).sort((a, b) => a - b);

// Counts of values in 30 equal bins; the bars of a series stand on the bars of those after it.
function histogram(title, series) {
  const shown = series.filter((s) => s.values.length), all = shown.flatMap((s) => s.values);
  const low = all.reduce((a, b) => Math.min(a, b), Infinity), high = all.reduce((a, b) => Math.max(a, b), -Infinity);
  const bins = 30, width = (high - low) / bins || 1 / bins, start = high === low ? low - 0.5 : low;
  const middles = [...Array(bins).keys()].map((b) => start + (b + 0.5) * width);
  const counts = shown.map((s) => s.values.reduce((found, v) => { found[Math.min(bins - 1, Math.floor((v - start) / width))]++; return found; }, new Array(bins).fill(0)));
  const stacked = counts.map((_, i) => middles.map((_, b) => counts.slice(i).reduce((sum, c) => sum + c[b], 0)));
  shown.forEach((s, i) => { s.at = i + 1; });
  const paths = uPlot.paths.bars({ size: [0.92] }), bar = (s) => ({ fill: () => ink(s.colour), width: 0, paths, points: { show: false } });
  return plotIn(title, shown, [middles, ...stacked], {
    series: [{}, ...shown.map(bar)], cursor: { drag: { x: false } }, scales: { x: { time: false, range: [start, start + bins * width] }, y: { range: (_, __, most) => [0, most * 1.05] } },
    axes: [{ values: (_, marks) => marks.map(short) }, { incrs: WHOLE }],
  }, { reading: (_, s, at) => String(at === null ? s.values.length : counts[s.at - 1][at]),
    placeOf: (at) => (at === null ? "all" : `from ${short(middles[at] - width / 2)} to ${short(middles[at] + width / 2)}`) });
}

// A figure with a plot, and a legend that reads what is at the cursor and hides what is pressed.
function plotIn(title, shown, data, options, { reading, placeOf, description = "" }) {
  const box = el("figure", { class: "chart" }, el("figcaption", { title: description }, visible(title)));
  if (!shown.length) return fill(box, {}, [el("p", { class: "hint" }, "no finite values")]);
  const place = el("span", { class: "step" }), values = shown.map(() => el("b", {}));
  const legend = el("p", { class: "legend" }, place, shown.map((s, i) => {
    const key = el("button", { type: "button", class: "link", "aria-pressed": "true", title: "show or hide it" }, swatch(s.colour, visible(s.name), " ", values[i]));
    key.addEventListener("click", () => {
      const isShown = key.getAttribute("aria-pressed") === "false";
      key.setAttribute("aria-pressed", String(isShown));
      for (const line of [s.at, ...(s.ends ?? [])]) plot.setSeries(line, { show: isShown });
    });
    return key;
  }));
  const read = (plot) => {
    const at = plot.cursor.idx ?? null;
    shown.forEach((s, i) => { values[i].textContent = reading(plot, s, at); });
    place.textContent = placeOf(at);
  };
  const quiet = () => ink("var(--quiet)"), rule = { stroke: () => ink("var(--rule)"), width: 1 };
  const look = { stroke: quiet, font: "11px system-ui", ticks: { show: false } };
  const [bottom, side] = options.axes;
  const canvas = el("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `${title}: arrow keys read it` });
  const plot = new uPlot({
    width: 280, height: HEIGHT, legend: { show: false },
    ...options, axes: [{ ...look, ...bottom, grid: { show: false }, size: 28 }, { ...look, ...side, grid: rule, size: 58 }],
    hooks: { setCursor: [read] },
  }, data, canvas);
  read(plot);
  canvas.addEventListener("keydown", (event) => moveCursor(plot, event));
  followSize(canvas, plot);
  return fill(box, {}, [canvas, legend]);
}

function moveCursor(plot, event) {
  const last = plot.data[0].length - 1, at = plot.cursor.idx ?? last;
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  plot.setCursor({ left: plot.valToPos(plot.data[0][Math.max(0, Math.min(last, to))], "x"), top: 0 });
}

// As wide as its box, once that is on the page; gone when the box is.
function followSize(box, plot) {
  const watch = new ResizeObserver(() => {
    if (box.isConnected) {
      DRAWN.add(plot);
      if (box.clientWidth && box.clientWidth !== plot.width) plot.setSize({ width: box.clientWidth, height: HEIGHT });
    } else if (DRAWN.delete(plot)) {
      watch.disconnect();
      plot.destroy();
    }
  });
  watch.observe(box);
}
