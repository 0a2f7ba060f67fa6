// Several runs side by side: how each ended, what differs, and their curves over each other.

// How the reader wants the table: by which column (as the runs were named), from which end, and which.
const TABLE = { column: null, isDown: false, find: "" };
const MOMENTS = ["before training", "after warm start"];
const HEADS = ["run", "environment", "steps", ...MOMENTS, "latest", "best"];

function drawOverview(head, { runs, differences }) {
  drawTitle(head);
  byId("subtitle").replaceChildren(visible(head.env_id));
  const box = byId("figures"), groups = [...new Set(runs.map((run) => run.group))];
  document.body.dataset.tab = "figures";
  for (const id of ["overview", "episodes", "about"]) byId(id).hidden = true;
  box.hidden = false;
  box.removeAttribute("role");
  byId("tabs").hidden = true;
  byId("theme").onclick = () => setTheme(nextTheme(document.documentElement.dataset.theme || ""));
  const draw = () => {
    const isMean = WANTED.isMean && groups.length < runs.length;
    runs.forEach((run, i) => { run.colour = isMean ? colourOf(groups.indexOf(run.group), groups.length) : colourOf(i, runs.length); });
    const found = runs.filter((run) => `${run.name} ${run.env_id} ${run.group}`.toLowerCase().includes(TABLE.find.toLowerCase()));
    const trained = found.filter((run) => run.kind === "training");
    rows.replaceChildren(runTable(found, draw));
    charts.replaceChildren(...(trained.length ? [chartSection(trained, draw)] : []));
    different.replaceChildren(differenceTable(found, differences, runs));
  };
  const rows = el("div", {}), charts = el("div", {}), different = el("div", {});
  const find = el("input", { type: "search", value: TABLE.find, placeholder: "name or setting",
    oninput: (event) => { TABLE.find = event.target.value; draw(); } });
  box.replaceChildren(el("section", { class: "variant runs" }, el("form", { class: "tools fields", "aria-label": "Runs", onsubmit: (event) => event.preventDefault() },
    el("h3", {}, "Runs"), el("label", {}, "Find runs", find)), rows), charts, different);
  draw();
}

function runTable(runs, draw) {
  const heads = HEADS.map((text, i) => el("button", { type: "button", class: "link", onclick: () => {
    Object.assign(TABLE, { column: i, isDown: TABLE.column === i ? !TABLE.isDown : i > 1 });
    draw();
  } }, text, TABLE.column === i ? (TABLE.isDown ? " \u2193" : " \u2191") : ""));
  const rows = runs.map((run) => [[el("span", {}, swatch(run.colour), el("a", { href: run.link }, visible(run.name))), run.name],
    [visible(run.env_id), run.env_id], ...outcomes(run)]);
  const key = (row) => row[TABLE.column][1];
  if (TABLE.column !== null) rows.sort((a, b) => (TABLE.isDown ? -1 : 1) * (isNumber(key(a)) && isNumber(key(b)) ? key(a) - key(b) : String(key(a)).localeCompare(String(key(b)), "en", { numeric: true })));
  return table(heads, rows.map((row) => row.map(([shown]) => shown)));
}

// Cells and what they are sorted by: steps, and held-out success at its moments, last and at best; of
// an evaluation the share of each variant.
function outcomes(run) {
  const none = ["\u2013", -1];
  if (run.kind !== "training") {
    const variants = Object.entries(run.figures || {});
    const shown = variants.map(([name, one]) => el("div", {}, incomplete(one), variants.length > 1 ? [visible(name), " "] : "", interval(one.success, percent)));
    return [[run.kind, -1], none, none, shown.length ? [el("div", {}, shown), variants[0][1].success.value] : [el("span", { class: "flag" }, "not finished"), -1], none];
  }
  const steps = Math.max(0, ...Object.values(run.curves.metrics).map(([column]) => column.at(-1)));
  const { columns, rows } = run.held_out, cells = rows[0]?.cells ?? [];
  const cell = (i) => (cells[i] ? [el("div", {}, incomplete(cells[i]), interval({ value: cells[i].success, low: cells[i].success_low, high: cells[i].success_high }, percent)), cells[i].success] : none);
  const last = MOMENTS.includes(columns.at(-1)) ? -1 : columns.length - 1;
  const curve = run.curves.evaluations[rows[0]?.variant], best = curve ? curve.success.indexOf(Math.max(...curve.success)) : 0;
  return [[`${steps} of ${run.num_steps ?? "?"}`, steps], ...MOMENTS.map((moment) => cell(columns.indexOf(moment))), cell(last),
    curve ? [`${percent(curve.success[best])} after train step ${curve.step[best]}`, curve.success[best]] : none];
}

function differenceTable(shown, differences, runs) {
  const keys = Object.keys(differences).sort();
  const head = ["key", ...shown.map((run) => swatch(run.colour, visible(run.name)))];
  const written = (value) => visible(value === null ? "\u2013" : typeof value === "string" ? value : JSON.stringify(value));
  const rows = keys.map((key) => [el("code", {}, key.split(/(?<=[._])/).flatMap((part) => [visible(part), el("wbr")])),
    ...shown.map((run) => written(differences[key][runs.indexOf(run)]))]);
  return el("section", { class: "variant differences" }, el("h3", {}, "What differs in their configuration"),
    keys.length ? table(head, rows) : el("p", { class: "hint" }, "Nothing but where they write and what they log."));
}

function table(head, rows) {
  return el("div", { class: "table-box", tabindex: "0" }, el("table", {}, el("thead", {}, el("tr", {}, head.map((h) => el("th", {}, h)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell)))))));
}
