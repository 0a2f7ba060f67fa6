// Line charts and histograms as inline SVG.

const CHART = { width: 520, height: 220, left: 56, right: 12, top: 10, bottom: 26 };
const MAX_POINTS = 600;

function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

// At most MAX_POINTS points: of every stretch the minimum and maximum value.
function thinned(points) {
  if (points.length <= MAX_POINTS) return points;
  const kept = [], size = Math.ceil(points.length / (MAX_POINTS / 2));
  for (let i = 0; i < points.length; i += size) {
    const part = points.slice(i, i + size).sort((a, b) => a.y - b.y);
    const ends = part.length > 1 ? [part[0], part[part.length - 1]] : part;
    kept.push(...ends.sort((a, b) => a.x - b.x));
  }
  return kept;
}

// series: [{ name, points: [{ x, y, low?, high? }], isDashed? }]; range: fixed [low, high] of y.
function lineChart(title, series, options) {
  const { range, format = short, description = "" } = options || {};
  const shown = series.map((s, i) => ({ ...s, colour: i % 8, points: s.points.filter((p) => isNumber(p.y)) }))
    .filter((s) => s.points.length);
  const box = el("figure", { class: "chart" }, el("figcaption", { title: description }, visible(title)));
  if (!shown.length) return fill(box, {}, [el("p", { class: "hint" }, "no finite values")]);
  const all = shown.flatMap((s) => s.points);
  const xs = all.map((p) => p.x), ys = all.flatMap((p) => [p.y, p.low, p.high].filter(isNumber));
  const extent = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  let [x0, x1] = extent(xs);
  const last = x1;
  let [y0, y1] = range || extent(ys);
  if (x0 === x1) { x0 -= 0.5; x1 += 0.5; }
  if (y0 === y1) { const gap = Math.abs(y0) || 1; y0 -= gap / 2; y1 += gap / 2; }
  else if (!range) { const gap = (y1 - y0) * 0.06; y0 -= gap; y1 += gap; }
  const { width, height, left, right, top, bottom } = CHART;
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const py = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const y of ticks(y0, y1, 5)) {
    picture.append(svg("line", { class: "rule", x1: left, x2: width - right, y1: py(y), y2: py(y) }),
      svg("text", { class: "tick", x: left - 6, y: py(y) + 4, "text-anchor": "end" }, format(y).replace(/\.0(?= %$)/, "")));
  }
  for (const x of ticks(x0, x1, 6).filter((x) => Number.isInteger(x))) {
    picture.append(svg("text", { class: "tick", x: px(x), y: height - 8, "text-anchor": "middle" }, String(x)));
  }
  for (const s of shown) {
    const points = thinned(s.points);
    const line = points.map((p) => `${px(p.x).toFixed(1)},${py(p.y).toFixed(1)}`).join(" ");
    const banded = points.filter((p) => isNumber(p.low) && isNumber(p.high));
    if (banded.length > 1) {
      const area = [...banded.map((p) => [p.x, p.high]), ...banded.reverse().map((p) => [p.x, p.low])];
      picture.append(svg("polygon", { class: `band s${s.colour}`,
        points: area.map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`).join(" ") }));
    }
    picture.append(svg("polyline", { class: `line s${s.colour}${s.isDashed ? " dashed" : ""}`, points: line }));
    if (points.length <= 30) {
      picture.append(...points.map((p) => svg("circle", { class: `dot s${s.colour}`, cx: px(p.x), cy: py(p.y), r: 2.6 })));
    }
  }
  addReadout(box, picture, shown, { px, x0, x1, last, format });
  return box;
}

function addReadout(box, picture, shown, { px, x0, x1, last, format }) {
  const { width, height, left, right, top, bottom } = CHART;
  const cursor = svg("line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
  const values = shown.map(() => el("b", {}));
  const step = el("span", { class: "step" });
  const legend = el("p", { class: "legend" }, shown.map((s, i) =>
    el("span", { class: `key s${s.colour}` }, visible(s.name), " ", values[i])), step);
  const show = (x) => {
    shown.forEach((s, i) => {
      const at = s.points.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a));
      const band = isNumber(at.low) ? ` (${format(at.low)} to ${format(at.high)})` : "";
      values[i].textContent = format(at.y) + band;
    });
    step.textContent = `step ${x}`;
  };
  picture.append(cursor);
  picture.addEventListener("pointermove", (event) => {
    const bounds = picture.getBoundingClientRect();
    const part = ((event.clientX - bounds.left) / bounds.width * width - left) / (width - left - right);
    const x = Math.round(x0 + Math.min(1, Math.max(0, part)) * (x1 - x0));
    fill(cursor, { x1: px(x), x2: px(x), visibility: "visible" }, []);
    show(x);
  });
  picture.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); show(last); });
  show(last);
  box.append(picture, legend);
}

// Counts of values in about 30 equal bins; one bar per bin and series, stacked.
function histogram(title, series) {
  const values = series.flatMap((s) => s.values);
  const box = el("figure", { class: "chart" }, el("figcaption", {}, visible(title)));
  if (!values.length) return fill(box, {}, [el("p", { class: "hint" }, "no finite values")]);
  let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  if (low === high) { low -= 0.5; high += 0.5; }
  const bins = 30, { width, height, left, right, top, bottom } = CHART;
  const counts = series.map((s) => {
    const found = new Array(bins).fill(0);
    for (const v of s.values) found[Math.min(bins - 1, Math.floor((v - low) / (high - low) * bins))]++;
    return found;
  });
  const most = Math.max(...counts[0].map((_, b) => counts.reduce((sum, c) => sum + c[b], 0)));
  const px = (v) => left + (v - low) / (high - low) * (width - left - right);
  const py = (n) => height - bottom - n / most * (height - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const n of ticks(0, most, 4).filter(Number.isInteger)) {
    picture.append(svg("line", { class: "rule", x1: left, x2: width - right, y1: py(n), y2: py(n) }),
      svg("text", { class: "tick", x: left - 6, y: py(n) + 4, "text-anchor": "end" }, String(n)));
  }
  for (const x of ticks(low, high, 6)) {
    picture.append(svg("text", { class: "tick", x: px(x), y: height - 8, "text-anchor": "middle" }, short(x)));
  }
  const step = (width - left - right) / bins;
  for (let b = 0; b < bins; b++) {
    let below = 0;
    series.forEach((s, i) => {
      const n = counts[i][b];
      if (n) {
        picture.append(svg("rect", { class: `bar ${s.kind}`, x: left + b * step + 0.5, width: step - 1,
          y: py(below + n), height: py(below) - py(below + n) },
        svg("title", {}, `${short(low + b * (high - low) / bins)} to ${short(low + (b + 1) * (high - low) / bins)}: ${n} ${s.name}`)));
      }
      below += n;
    });
  }
  box.append(picture, el("p", { class: "legend" }, series.filter((s) => s.values.length).map((s) =>
    el("span", { class: `key ${s.kind}` }, s.name, " ", el("b", {}, String(s.values.length))))));
  return box;
}
