// How members of different runs play together: a heat map for each player, pairs, competence.

const HEAT_LEVELS = 5;

function crossplayParts({ runs, cells, within, cross, coordination, competence, pairs, conventions }) {
  const players = Object.keys(competence), moving = [...new Set(cells.map((c) => c.player).filter((p) => p !== null))];
  const words = conventions.length
    ? `Clearly different conventions: ${conventions.map((pair) => pair.join(" and ")).join("; ")}.`
    : "No pair of runs clearly follows different conventions.";
  return [
    el("section", { class: "variant" }, el("h3", {}, "Coordination"), el("div", { class: "milestones" },
      milestone("own teams", within), milestone("mixed teams", cross),
      el("div", {}, el("span", {}, "own minus mixed"), change(coordination, 1, true))), el("p", {}, visible(words))),
    ...moving.map((player) => heatMap(runs, cells, player, players.length === 2 ? players[1] : "all others")),
    el("section", { class: "variant" }, el("h3", {}, "Pairs of runs"), table(["runs", "mixed teams", "coordination", "clash"],
      pairs.map((p) => [visible(p.runs.join(" and ")), interval(p.cross, percent), change(p.coordination, 1, true), change(p.clash, 1, true)]))),
    el("section", { class: "variant" }, el("h3", {}, "Competence: success among strangers"), table(["run", ...players],
      runs.map((run) => [visible(run), ...players.map((player) => interval(competence[player][run], percent))]))),
  ];
}

function milestone(name, figure) {
  return el("div", {}, el("span", {}, name), el("b", {}, percent(figure.value)), bar(figure),
    el("small", {}, `${percent(figure.low)} to ${percent(figure.high)}`));
}

function heatMap(runs, cells, player, others) {
  const at = (member, team) => cells.find((c) => c.team === team && c.member === member && c.player === (member === team ? null : player)).success;
  const cell = (member, team) => {
    const { value, low, high } = at(member, team);
    return el("td", { "data-heat": String(Math.round(HEAT_LEVELS * value)), class: member === team ? "own" : "",
      title: `${percent(low)} to ${percent(high)}` }, percent(value));
  };
  return el("section", { class: "variant" }, el("h3", {}, visible(player), " of the row, ", visible(others), " of the column"),
    el("div", { class: "table-box" }, el("table", { class: "heat" },
      el("thead", {}, el("tr", {}, el("th", {}), runs.map((run) => el("th", {}, visible(run))))),
      el("tbody", {}, runs.map((member) => el("tr", {}, el("th", {}, visible(member)), runs.map((team) => cell(member, team))))))));
}
