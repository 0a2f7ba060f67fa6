// What the page of a run opens on: results, three decisions, one level twice, failures.

const MAX_ACTIONS = 12;

async function drawSummary(store) {
  const box = byId("overview"), { blame, crossplay, milestones, instructive, pair, failures } = await store.summary();
  const curves = store.head.kind === "training" ? await store.curves() : null;
  const parts = [
    ...(blame ? await blameParts(store, blame) : crossplay ? crossplayParts(crossplay) : [results(store, milestones)]),
    ...(curves ? [learningCharts(curves)] : []),
    ...(instructive.length ? [el("h3", {}, "Decisions to look at"),
      el("div", { class: "cards" }, await Promise.all(instructive.map((one) => decisionCard(store, one))))] : []),
    ...(pair.length ? [el("h3", {}, "The same level, twice"),
      el("div", { class: "cards" }, await Promise.all(pair.map((play) => playCard(store, play))))] : []),
    failureTable(failures),
  ];
  box.replaceChildren(...parts.filter(Boolean));
}

// Address of a place in an episode; the page opens it like any other address.
function addressOf(e, n = 0, more = {}) {
  return "#" + new URLSearchParams({ tab: "episodes", view: "detail", e, n, ...more });
}

// The first row large, a figure for each moment; the others in a table.
function results(store, { columns, rows }) {
  if (!rows.length) return store.length ? counts(store) : el("p", { class: "hint" }, "Nothing is evaluated or recorded yet.");
  const [{ name, cells }, ...others] = rows;
  const marks = el("div", { class: "milestones" }, cells.map((cell, i) => el("div", {},
    el("span", {}, visible(columns[i])), cell ? incomplete(cell) : "", el("b", {}, cell ? percent(cell.success) : "\u2013"),
    ...(cell ? [bar({ value: cell.success, low: cell.success_low, high: cell.success_high }),
      el("small", {}, reach(cell), cell.num_episodes === cell.num_expected ? ` \u00b7 ${plural(cell.num_episodes, "episode", "episodes")}` : "")] : []))));
  const body = others.map((row) => [visible(row.name), ...columns.map((_, i) => {
    const cell = row.cells[i];
    if (cell === undefined) return el("small", {}, "same");
    return cell ? el("span", {}, `${percent(cell.success)} `, el("small", {}, reach(cell)), incomplete(cell)) : "";
  })]);
  return el("section", { class: "variant" }, el("h3", {}, store.head.kind === "training" ? "Held-out levels solved, " : "",
    store.head.kind === "training" ? visible(name) : "Solved episodes"), marks,
  others.length ? table(["who plays", ...columns], body) : "");
}

function reach({ success_low, success_high }) {
  return isNumber(success_low) ? `${percent(success_low)} to ${percent(success_high)}` : "";
}

function learningCharts(curves) {
  const all = curvesOf(curves), of = (test) => all.filter(test).map((curve) => ({ ...curve, name: curve.series }));
  const held = of(({ kind }) => kind === "held-out success"), roles = of(({ kind }) => kind === "role/reward");
  const charts = [held.length ? lineChart("held-out success, with 95 % intervals", held, held[0].options) : null,
    roles.length ? lineChart("reward of an action, by role, in training", roles) : null].filter(Boolean);
  return charts.length ? el("div", { class: "charts" }, charts) : null;
}

async function decisionCard(store, { title, text, episode: position, decision, candidate, other, answers }) {
  const episode = await store.episode(position), place = other === null ? { k: candidate } : { k: candidate, c: other };
  const board = boardOf(episode.decisions[decision]);
  const shown = answers.slice(0, MAX_ACTIONS).map(([n, k]) => actionLine(position, episode.decisions, n, k));
  return el("article", { class: "card" }, el("h4", {}, title), el("p", {}, visible(text)),
    el("div", { class: "scene" }, board ? drawBoard(board, boardOf(episode.decisions[0]), "board of the decision") : null,
      el("ul", { class: "plays" }, shown)),
    el("p", { class: "more" }, el("a", { href: addressOf(position, decision, place) }, "Open it in its tree"),
      el("small", {}, visible(store.labelOf(position)))));
}

async function playCard(store, { name, episode: position }) {
  const episode = await store.episode(position), { decisions } = episode, ending = store.index.endings[position];
  const frames = boardFrames(episode, decisions), first = decisions.length ? boardOf(decisions[0]) : null;
  const taken = decisions.flatMap((decision, n) => (decision.chosen === null ? [] : [[n, decision.chosen]]));
  return el("article", { class: "card" },
    el("h4", {}, visible(name), el("span", { class: "badge " + ending }, ENDINGS[ending][1])),
    frames.length > 1 ? el("div", { class: "strip" }, frames.map((frame) => el("a", { href: addressOf(position, frame.i) },
      drawBoard(frame.board, first, `board, ${frame.text}`), el("span", {}, frame.text)))) : null,
    el("ul", { class: "plays" }, taken.slice(0, MAX_ACTIONS).map(([n, k]) => actionLine(position, decisions, n, k)),
      taken.length > MAX_ACTIONS ? el("li", {}, el("small", {}, plural(taken.length - MAX_ACTIONS, "more action", "more actions"))) : null),
    el("p", { class: "more" }, el("a", { href: addressOf(position) }, "Open the episode"),
      el("small", {}, visible(store.labelOf(position)))));
}

function actionLine(position, decisions, n, k) {
  const decision = decisions[n], c = decision.candidates[k];
  const worth = isNumber(c.advantage) ? `advantage ${signed(c.advantage)}` : `reward ${signed(c.reward)}`;
  return el("li", {}, el("small", {}, `turn ${decision.turn + 1} \u00b7 `, visible(decision.agent)),
    el("a", { href: addressOf(position, n, { k }) }, visible(actionOf(c))), flags(c), el("small", {}, worth));
}

function failureTable({ columns, rows, num_others: numOthers }) {
  if (!columns.length) return null;
  const body = rows.map(({ of, cause, counts: found, totals, place: [e, n, k] }) => [
    el("span", {}, el("a", { href: addressOf(e, n, k === null ? {} : { k }) }, visible(cause)),
      el("small", {}, of === "episodes" ? " \u00b7 episodes" : " \u00b7 answers of ", of === "episodes" ? "" : visible(of))),
    ...found.map((count, i) => (totals[i] ? `${count} of ${totals[i].toLocaleString("en")}` : "\u2013"))]);
  return el("section", { class: "variant failures" }, el("h3", {}, "Failures in the recorded episodes"),
    rows.length ? table(["what failed", ...columns], body) : el("p", {}, "None in the episodes that are recorded."),
    numOthers ? el("p", { class: "hint" }, plural(numOthers, "failure", "failures"), " of other causes.") : "");
}
