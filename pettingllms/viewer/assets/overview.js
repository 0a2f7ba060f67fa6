// Several runs side by side: how each ended, what differs, and their curves over each other.

function drawOverview(head, { runs, differences }) {
  drawTitle(head);
  byId("subtitle").replaceChildren(visible(head.env_id));
  const box = byId("figures");
  const open = new Set([...box.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
  document.body.dataset.tab = "figures";
  for (const id of ["overview", "episodes", "about"]) byId(id).hidden = true;
  box.hidden = false;
  box.removeAttribute("role");
  byId("tabs").hidden = true;
  const [heldOut, ...others] = overlays(runs);
  box.replaceChildren(...[runTable(runs), heldOut, differenceTable(runs, differences), ...others].filter(Boolean));
  if (open.size) box.querySelectorAll("details").forEach((group) => { group.open = open.has(group.firstChild.textContent); });
  byId("theme").onclick = () => {
    fill(document.documentElement, { "data-theme": nextTheme(document.documentElement.dataset.theme || "") }, []);
  };
}

function swatch(i) {
  return el("span", { class: `key s${i % 8}` });
}

function runTable(runs) {
  const head = ["run", "environment", "steps", "solved before", "solved last", "best"];
  const rows = runs.map((run, i) => [
    el("span", {}, swatch(i), el("a", { href: run.link }, visible(run.name))), visible(run.env_id), ...outcomes(run)]);
  return el("section", { class: "variant" }, el("h3", {}, "Runs"), table(head, rows));
}

// Steps, and held-out success before, last and at best; of an evaluation the share of each variant.
function outcomes(run) {
  if (run.kind !== "training") {
    const variants = Object.entries(run.figures || {});
    const shown = variants.map(([name, one]) => el("div", {}, incomplete(one), variants.length > 1 ? [visible(name), " "] : "", interval(one.success, percent)));
    return [run.kind, "", shown.length ? el("div", {}, shown) : el("span", { class: "flag" }, "not finished"), ""];
  }
  const steps = Math.max(0, ...Object.values(run.curves.metrics).map(([column]) => column.at(-1)));
  const done = `${steps} of ${run.num_steps ?? "?"}`, curves = run.curves.evaluations, found = curves.greedy ?? curves.sampled;
  if (!found || !found.step.length) return [done, "\u2013", "\u2013", "\u2013"];
  const at = (i) => el("div", {}, incomplete({ num_episodes: found.num_episodes[i], num_expected: found.num_expected[i], failures: found.failures[i] }),
    interval({ value: found.success[i], low: found.success_low[i], high: found.success_high[i] }, percent));
  const best = found.success.indexOf(Math.max(...found.success));
  return [done, found.step[0] === 0 ? at(0) : "\u2013", found.step.at(-1) > 0 ? at(found.step.length - 1) : "\u2013",
    `${percent(found.success[best])} after step ${found.step[best]}`];
}

function differenceTable(runs, differences) {
  const keys = Object.keys(differences).sort();
  const head = ["key", ...runs.map((run, i) => el("span", {}, swatch(i), visible(run.name)))];
  const shown = (value) => visible(value === null ? "\u2013" : typeof value === "string" ? value : JSON.stringify(value));
  const rows = keys.map((key) => [el("code", {}, key.split(/(?<=[._])/).flatMap((part) => [visible(part), el("wbr")])), ...differences[key].map(shown)]);
  return el("section", { class: "variant differences" }, el("h3", {}, "What differs in their configuration"),
    keys.length ? table(head, rows) : el("p", { class: "hint" }, "Nothing but where they write and what they log."));
}

function table(head, rows) {
  return el("div", { class: "table-box" }, el("table", {}, el("thead", {}, el("tr", {}, head.map((h) => el("th", {}, h)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell)))))));
}

// A chart for each metric that any run has, a curve for each run; the first group is open.
function overlays(runs) {
  const trained = runs.filter((run) => run.kind === "training");
  if (!trained.length) return [];
  const series = (points) => runs.map((run) => ({ name: run.name, points: run.kind === "training" ? points(run) : [] }));
  const variants = [...new Set(trained.flatMap((run) => Object.keys(run.curves.evaluations)))].filter((name) => !/^(scripted|reference|untouched):/.test(name));
  const heldOut = variants.map((name) => [`held-out success, ${name}`, series((run) => {
    const found = run.curves.evaluations[name];
    return found ? found.step.map((x, i) => ({ x, y: found.success[i], low: found.success_low[i], high: found.success_high[i] })) : [];
  })]);
  const groups = [group("Held-out evaluation", true, () => heldOut.map(([title, lines]) =>
    lineChart(title, lines, { range: [0, 1], format: percent })))];
  const names = [...new Set(trained.flatMap((run) => Object.keys(run.curves.metrics)))].filter((name) => !/^eval\//.test(name));
  const known = new Set();
  for (const [title, pattern, isOpen] of [...CHART_GROUPS, ["Others", /^/, false]]) {
    const own = names.filter((name) => pattern.test(name) && !known.has(name));
    own.forEach((name) => known.add(name));
    if (own.length) groups.push(group(title, isOpen && title === "Rollouts", () => own.map((name) => lineChart(name.replaceAll("_", " "), series((run) => {
      const [steps, values] = run.curves.metrics[name] || [[], []];
      return steps.map((x, i) => ({ x, y: values[i] }));
    })))));
  }
  return groups;
}
