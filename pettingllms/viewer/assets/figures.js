// Learning curves of a training run, figures of an evaluation, and how rewards are spread.

const CHART_GROUPS = [
  ["Rollouts", /^rollout\//, true],
  ["Roles", /^role\//, true],
  ["Loss", /^loss\//, false],
  ["Updates", /^(update|warm_start)\//, false],
  ["Time and throughput", /^(time|throughput)\//, false],
];

async function drawFigures(store) {
  const box = byId("figures");
  const parts = [];
  if (store.head.kind === "training") {
    const curves = await store.curves();
    parts.push(...heldOut(curves.evaluations), ...metricGroups(curves.metrics));
    if (!parts.length) parts.push(el("p", { class: "hint" }, "This run has no metrics yet."));
  } else if (store.head.figures) {
    parts.push(...Object.entries(store.head.figures).map(([variant, figures]) => variantFigures(variant, figures)));
  } else if (store.length) {
    parts.push(counts(store));
  }
  if (store.length) parts.push(spread(store));
  box.replaceChildren(...parts);
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

function heldOut(variants) {
  const names = Object.keys(variants);
  if (!names.length) return [];
  const last = names.reduce((most, name) => Math.max(most, variants[name].step.at(-1)), 0);
  const series = (field) => names.map((name) => {
    const variant = variants[name], isSuccess = field === "success";
    const points = variant.step.map((x, i) => ({ x, y: variant[field][i],
      low: isSuccess ? variant.success_low[i] : undefined, high: isSuccess ? variant.success_high[i] : undefined }));
    // a scripted policy is evaluated once and does not learn: a level line
    const isScripted = /^(scripted|reference):/.test(name);
    if (isScripted && points.length === 1 && last > points[0].x) {
      points.push({ x: last, y: points[0].y });
    }
    return { name, points, isDashed: isScripted };
  });
  return [group("Held-out evaluation", true, () => [
    lineChart("success, with 95 % intervals", series("success"), { range: [0, 1], format: percent }),
    lineChart("turns of an episode", series("num_turns")),
  ])];
}

// One chart per kind of metric: those that differ only in the role or policy share one.
function metricGroups(metrics) {
  const names = Object.keys(metrics), groups = [];
  const known = new Set(), isOther = (name) => !/^eval\//.test(name) && !known.has(name);
  for (const [title, pattern, isOpen] of [...CHART_GROUPS, ["Others", /^/, false]]) {
    const charts = new Map();
    for (const name of names.filter((n) => pattern.test(n) && isOther(n))) {
      known.add(name);
      const parts = name.split("/");
      const [kind, series] = parts.length > 2
        ? [[parts[0], ...parts.slice(2)].join("/"), parts[1]] : [name, parts.at(-1)];
      if (!charts.has(kind)) charts.set(kind, []);
      const [steps, values] = metrics[name];
      charts.get(kind).push({ name: series, points: steps.map((x, i) => ({ x, y: values[i] })) });
    }
    if (charts.size) {
      groups.push(group(title, isOpen, () => chartsOf(charts)));
    }
  }
  return groups;
}

// Charts of what changes; what never does stands below in words.
function chartsOf(charts) {
  const moving = [], constant = [];
  for (const [kind, series] of charts) {
    const values = series.map((s) => new Set(s.points.map((p) => p.y)));
    if (values.every((set) => set.size === 1)) {
      constant.push(...series.map((s, i) => fact(series.length > 1 ? `${kind} of ${s.name}` : kind, short([...values[i]][0]))));
    } else {
      moving.push(lineChart(kind.replaceAll("_", " "), series));
    }
  }
  if (constant.length) {
    moving.push(el("figure", { class: "chart" }, el("figcaption", {}, "The same in every step"), el("dl", { class: "facts" }, constant)));
  }
  return moving;
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
      const series = [["solved", "solved"], ["not solved", "unsolved"]].map(([name, kind]) => ({ name, kind, values: [] }));
      for (let i = 0; i < store.length; i++) {
        const value = store.rewardOf(i, role);
        if (isNumber(value)) series[index.endings[i] === "solved" ? 0 : 1].values.push(value);
      }
      return histogram(role ? `reward of ${role}, sum of its own actions` : "return, mean of all agents", series);
    }));
}
