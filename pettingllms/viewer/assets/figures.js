// Learning curves of a training run, figures of an evaluation, and how rewards are spread.

// Sections of the charts: title, which metrics, and whether it is open at first.
const CHART_GROUPS = [
  ["Held-out evaluation", /^eval\//, true],
  ["Rollouts", /^rollout\//, true],
  ["Roles", /^role\//, true],
  ["Loss", /^loss\//, false],
  ["Updates", /^(update|warm_start)\//, false],
  ["Time and throughput", /^(time|throughput)\//, false],
  ["Others", /^/, false],
];

async function drawFigures(store) {
  const box = byId("figures"), parts = [];
  if (store.head.kind === "training") {
    parts.push(chartSection([{ name: store.head.name, curves: await store.curves() }]));
  } else if (store.head.figures) {
    parts.push(...Object.entries(store.head.figures).map(([variant, figures]) => variantFigures(variant, figures)));
  } else if (store.length) {
    parts.push(counts(store));
  }
  if (store.length) parts.push(spread(store));
  box.replaceChildren(...parts);
}

// What a reader wants to see of the charts of one run, or of several.
const WANTED = { metric: "", isMean: true };

// All charts of runs, [{ name, curves, group? }], under the choices that hold for all of them.
function chartSection(runs, redrawPage) {
  const content = el("div", {});
  const choice = (words, choices, name, redraw) => el("label", { class: "check" }, el("input", { type: "checkbox", checked: choices[name],
    onchange: (event) => { choices[name] = event.target.checked; redraw(); } }), words);
  const draw = () => {
    const open = new Map([...content.querySelectorAll("details")].map((box) => [box.firstChild.textContent, box.open]));
    content.replaceChildren(...chartGroups(runs));
    content.querySelectorAll("details").forEach((box) => { if (!WANTED.metric) box.open = open.get(box.firstChild.textContent) ?? box.open; });
  };
  const smoothing = el("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: CHOSEN.smoothing,
    oninput: (event) => { CHOSEN.smoothing = Number(event.target.value); draw(); } });
  const axis = el("select", { onchange: (event) => { CHOSEN.x = event.target.value; draw(); } },
    ["step", "tokens", "time"].map((name) => el("option", { value: name, selected: name === CHOSEN.x }, AXES[name][0])));
  const metric = el("input", { type: "search", value: WANTED.metric, placeholder: "reward, loss, ...",
    oninput: (event) => { WANTED.metric = event.target.value.toLowerCase(); draw(); } });
  draw();
  return el("section", {}, el("form", { class: "tools fields", "aria-label": "Charts", onsubmit: (event) => event.preventDefault() },
    el("label", {}, "Metric", metric), el("label", {}, "Over", axis), el("label", {}, "Smoothing", smoothing),
    choice("log axis", CHOSEN, "isLog", draw),
    new Set(runs.map((run) => run.group)).size < runs.length ? choice("mean of seeds", WANTED, "isMean", redrawPage) : "",
    el("button", { type: "button", onclick: () => download(runs) }, "Download CSV")), content);
}

function group(title, isOpen, draw) {
  const content = el("div", { class: "charts" });
  const box = el("details", { class: "group" }, el("summary", {}, title), content);
  const fillOnce = () => { if (box.open && !content.childNodes.length) content.append(...draw()); };
  box.addEventListener("toggle", fillOnce);
  box.open = isOpen;
  fillOnce();
  return box;
}

// The curves of a run: { section, name, kind, series, points, options }. Metrics that differ only in
// the role or policy, which is `series`, are of one kind.
function curvesOf({ evaluations, metrics, axes }) {
  const [, places] = axes[CHOSEN.x] ?? [[], []], [steps] = axes[CHOSEN.x] ?? [[]];
  const at = (step) => (CHOSEN.x === "step" ? step : places[steps.findLastIndex((s) => s <= step)] ?? 0);
  const last = Math.max(0, ...Object.values(evaluations).flatMap(({ step }) => step)), found = [];
  for (const [variant, figures] of Object.entries(evaluations)) {
    // A scripted policy is evaluated once and does not learn: a level line.
    const isDashed = /^(scripted|reference):/.test(variant), isLevel = isDashed && figures.step.length === 1 && last > figures.step[0];
    const add = (kind, points, options) => found.push({ section: "Held-out evaluation", name: `${kind}, ${figures.name}`, kind, series: figures.name, variant,
      points: (isLevel ? [points[0], { ...points[0], x: last }] : points).map((p) => ({ ...p, step: p.x, x: at(p.x) })), options, isDashed });
    const points = (field) => figures.step.map((x, i) => ({ x, y: figures[field][i] }));
    add("held-out success", points("success").map((p, i) => ({ ...p, low: figures.success_low[i], high: figures.success_high[i] })),
      { range: [0, 1], format: percent, description: "with 95 % intervals" });
    add("turns of an episode", points("num_turns"), {});
  }
  for (const name of Object.keys(metrics).filter((one) => !one.startsWith("eval/"))) {
    const parts = name.split("/"), [of, values] = metrics[name], [section] = CHART_GROUPS.find(([, pattern]) => pattern.test(name));
    found.push({ section, name, kind: parts.length > 2 ? [parts[0], ...parts.slice(2)].join("/") : name, options: {},
      series: parts.length > 2 ? parts[1] : parts.at(-1), points: of.map((step, i) => ({ step, x: at(step), y: values[i] })) });
  }
  return found;
}

// Of one run a chart has a line for each role or policy, of several one for each run or, where seeds
// are taken together, for each configuration.
function chartGroups(runs) {
  const isOne = runs.length === 1, sections = new Map(CHART_GROUPS.map(([title]) => [title, new Map()]));
  runs.forEach((run) => curvesOf(run.curves).forEach((curve) => {
    if (!isOne && (curve.isDashed || /^(untouched|swapped)/.test(curve.variant))) return;
    const title = isOne ? curve.kind : curve.name, charts = sections.get(curve.section);
    if (!title.toLowerCase().includes(WANTED.metric)) return;
    if (!charts.has(title)) charts.set(title, []);
    charts.get(title).push({ ...curve, group: run.group, name: isOne ? curve.series : run.name, colour: run.colour });
  }));
  const shown = CHART_GROUPS.filter(([title]) => sections.get(title).size);
  if (!shown.length) return [el("p", { class: "hint" }, WANTED.metric ? "No metric has this in its name." : "There are no metrics yet.")];
  return shown.map(([title, , isOpen]) => group(title, isOpen || Boolean(WANTED.metric), () => chartsOf(sections.get(title))));
}

// The mean of each configuration's runs, step by step, between the lowest and the highest of them.
function meansOf(series) {
  const groups = Map.groupBy(series, (s) => s.group);
  return [...groups].map(([name, own]) => {
    if (own.length === 1) return own[0];
    const steps = Map.groupBy(own.flatMap((s) => s.points).filter((p) => isNumber(p.y)), (p) => p.step);
    const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;
    const points = [...steps].sort(([a], [b]) => a - b).map(([, at]) => ({ x: mean(at.map((p) => p.x)), y: mean(at.map((p) => p.y)),
      low: Math.min(...at.map((p) => p.y)), high: Math.max(...at.map((p) => p.y)) }));
    return { ...own[0], name: `${name} (${own.length} seeds)`, points };
  });
}

// Charts of what changes; what never does stands below in words.
function chartsOf(charts) {
  const moving = [], constant = [];
  for (const [title, lines] of charts) {
    const series = lines[0].group !== undefined && WANTED.isMean ? meansOf(lines) : lines;
    const values = new Set(series.flatMap((s) => s.points.map((p) => p.y)));
    if (values.size === 1 && !lines[0].options.range) constant.push(fact(title, short([...values][0])));
    else moving.push(lineChart(inWords(title), series, { ...lines[0].options, axis: CHOSEN.x }));
  }
  if (constant.length) {
    moving.push(el("figure", { class: "chart" }, el("figcaption", {}, "The same in every step"), el("dl", { class: "facts" }, constant)));
  }
  return moving;
}

// The shown metrics of all runs, a line for each value, as a file.
function download(runs) {
  const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`;
  const lines = runs.flatMap((run) => curvesOf(run.curves).filter(({ name }) => name.toLowerCase().includes(WANTED.metric))
    .flatMap(({ name, points }) => points.map((p) => [quoted(run.name), quoted(name), p.step, p.x, p.y].join(","))));
  const file = new Blob([["run,metric,step,x,value", ...lines, ""].join("\n")], { type: "text/csv" });
  const link = el("a", { href: URL.createObjectURL(file), download: "metrics.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function interval(figure, format) {
  if (!figure) return "\u2013";
  return `${format(figure.value)} (${format(figure.low)} to ${format(figure.high)})`;
}

// A mark on figures of which episodes are missing, with the causes; nothing where all are there.
function incomplete({ num_episodes: num, num_expected: expected, failures = {} }) {
  if (num === expected) return "";
  const causes = Object.entries(failures).map(([cause, count]) => el("small", {}, `${count} failed: `, visible(cause)));
  return el("div", { class: "incomplete" }, el("span", { class: "flag" }, `incomplete: ${num} of ${expected} episodes`), causes);
}

function bar(figure) {
  const picture = svg("svg", { class: "interval", viewBox: "0 0 200 14", width: 200, height: 14, "aria-hidden": "true" },
    svg("rect", { class: "track", x: 0, y: 5, width: 200, height: 4, rx: 2 }));
  if (isNumber(figure.low)) {
    picture.append(svg("rect", { class: "reach", x: 200 * figure.low, y: 3, width: Math.max(1, 200 * (figure.high - figure.low)), height: 8, rx: 4 }));
  }
  return fill(picture, {}, [svg("circle", { class: "value", cx: 200 * figure.value, cy: 7, r: 5 })]);
}

function variantFigures(variant, figures) {
  const { success } = figures;
  const facts = [
    ["episodes", `${figures.num_episodes} of ${figures.num_expected}`], ["levels", String(figures.num_levels)],
    ["turns", interval(figures.num_turns, short)], ["ended", Object.entries(figures.ends || {}).map(([end, count]) => `${end} ${count}`).join(", ")],
    ...Object.entries(figures.pass_at_k || {}).map(([k, figure]) => [`pass@${k}`, interval(figure, percent)]),
    ...Object.entries(figures.returns || {}).map(([agent, figure]) => [`return of ${agent}`, interval(figure, short)]),
  ];
  const head = ["role", "policy", "actions", "reward per episode", "unreadable", "truncated", "tokens in / out", "cost"];
  const rows = Object.entries(figures.roles || {}).map(([role, r]) => [
    role, r.policy, r.num_actions, interval(r.reward, short), interval(r.parse_errors, percent), percent(r.cut),
    tokensOf(r.usage), r.cost_usd === null ? "\u2013" : `$${short(r.cost_usd)}`]);
  return el("section", { class: "variant" }, el("h3", {}, "Variant ", visible(variant)),
    el("p", { class: "big" }, el("b", {}, percent(success.value)), " solved ", el("small", {}, `95 % interval ${percent(success.low)} to ${percent(success.high)}`)),
    bar(success), el("dl", { class: "facts" }, facts.map(([name, value]) => fact(name, value))),
    el("div", { class: "table-box" }, el("table", {}, el("thead", {}, el("tr", {}, head.map((h) => el("th", {}, h)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value) => el("td", {}, visible(String(value))))))))));
}

function tokensOf(usage) {
  const of = (count, kind) => (count ? ` (${count} ${kind})` : "");
  return `${usage.prompt_tokens}${of(usage.cached_tokens, "cached")} / ${usage.completion_tokens}${of(usage.reasoning_tokens, "reasoning")}`;
}

// Solved episodes by the first part of their key, where there is no report with intervals.
function counts(store) {
  const { index } = store, groups = new Map();
  index.endings.forEach((ending, i) => {
    const name = index.labels.length > 1 ? `${index.labels[0]} ${index.keys[0][i]}` : "all";
    const found = groups.get(name) || [0, 0];
    groups.set(name, [found[0] + (ending === "solved"), found[1] + 1]);
  });
  return el("section", { class: "variant" }, el("h3", {}, "Solved episodes"), el("dl", { class: "facts wide" },
    [...groups].map(([name, [solved, all]]) => fact(name, `${solved} of ${all}`))));
}

function spread(store) {
  const { index } = store;
  return group(`Recorded episodes (${store.length.toLocaleString("en")})`, store.head.kind !== "training", () =>
    ["", ...store.roles].map((role) => {
      const series = [["solved", "var(--good3)"], ["not solved", "var(--bad2)"]].map(([name, colour]) => ({ name, colour, values: [] }));
      for (let i = 0; i < store.length; i++) {
        const value = store.rewardOf(i, role);
        if (isNumber(value)) series[index.endings[i] === "solved" ? 0 : 1].values.push(value);
      }
      return histogram(role ? `reward of ${role}, sum of its own actions` : "return, mean of all agents", series);
    }));
}
