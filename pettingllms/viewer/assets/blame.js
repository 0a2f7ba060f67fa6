// Who lost an episode: what could be expected around every answer, its drop, and the players' shares.

const MAX_JUDGED = 20;

async function blameParts(store, { measure, players, episodes }) {
  const isShare = measure === "success", format = isShare ? percent : short;
  const shown = await Promise.all(episodes.slice(0, MAX_JUDGED).map((one) => judgedEpisode(store, one, isShare, format)));
  const rest = episodes.length - shown.length;
  return [
    episodes.length > 1 ? playerTable(players, episodes.length, isShare) : null, ...shown,
    rest ? el("p", { class: "hint" }, plural(rest, "more episode", "more episodes"), " in the list of episodes.") : null,
  ];
}

async function judgedEpisode(store, one, isShare, format) {
  const position = store.positionOf([one.name]), { decisions } = await store.episode(position);
  const { answers, shares, coalitions, top } = one, scale = isShare ? 1 : largest(answers.flatMap((a) => [a.drop, a.missed]));
  const places = answers.map((a) => a.before).concat(answers.at(-1).after);
  const course = { name: isShare ? "chance of success" : "expected return", points: places.map((v, i) => ({ x: i, y: v.value, low: v.low, high: v.high })) };
  const hasOther = answers[0].missed !== null;
  const head = ["answer", "expected", "drop", ...(hasOther ? ["missed"] : [])];
  const body = answers.map((a) => [
    el("span", {}, el("a", { href: addressOf(position, a.index) }, visible(actionOf(decisions[a.index].candidates[0]))),
      el("small", {}, ` \u00b7 turn ${a.turn + 1} \u00b7 `, visible(a.agent)),
      a.index === top && one.is_clear ? el("span", { class: "flag" }, "lost it") : ""),
    `${format(a.before.value)} \u2192 ${format(a.after.value)}`,
    ...[a.drop, a.missed].filter(Boolean).map((figure) => change(figure, scale, isShare))]);
  return el("section", { class: "variant blamed" }, el("h3", {}, visible(one.name)), el("p", {}, visible(one.verdict)),
    el("div", { class: "charts" }, lineChart(isShare ? "chance of success after so many answers" : "expected return after so many answers",
      [course], { axis: "answer", ...(isShare ? { range: [0, 1], format: percent } : {}) }),
    Object.keys(shares).length ? shareBox(shares, coalitions, isShare, format) : null),
    table(head, body));
}

function shareBox(shares, coalitions, isShare, format) {
  const scale = isShare ? 1 : largest(Object.values(shares));
  const values = coalitions.map(({ kept, value }) => fact(kept.length ? `kept: ${kept.join(", ")}` : "all replaced", `${format(value.value)}`));
  return el("figure", { class: "chart" }, el("figcaption", {}, "shares of what is lost by keeping the current policies"),
    table(["player", "share"], Object.entries(shares).map(([name, figure]) => [visible(name), change(figure, scale, isShare)])),
    el("dl", { class: "facts" }, values));
}

function playerTable(players, count, isShare) {
  const scale = isShare ? 1 : largest(Object.values(players).flatMap((p) => [p.drop, p.share]));
  const rows = Object.entries(players).map(([name, p]) => [visible(name), `${p.num_top} of ${count}`, change(p.drop, scale, isShare),
    p.share ? change(p.share, scale, isShare) : "\u2013"]);
  return el("section", { class: "variant" }, el("h3", {}, "All episodes"), table(["player", "clear largest drop", "drops, summed", "share of the loss"], rows));
}

function largest(figures) {
  return Math.max(1e-9, ...figures.filter(Boolean).flatMap((f) => [f.value, f.low, f.high].filter(isNumber).map(Math.abs)));
}

// A figure of either sign on a track with 0 in its middle, and in words.
function change(figure, scale, isShare) {
  const at = (value) => 100 + 100 * Math.max(-1, Math.min(1, value / scale)), words = (v) => (isShare ? `${(100 * v).toFixed(0)}` : short(v));
  const { value, low, high } = figure, hasReach = isNumber(low) && isNumber(high), kind = hasReach && low > 0 ? " lost" : "";
  const picture = svg("svg", { class: "interval" + kind, viewBox: "0 0 200 14", width: 140, height: 10, "aria-hidden": "true" },
    svg("rect", { class: "track", x: 0, y: 5, width: 200, height: 4, rx: 2 }), svg("line", { class: "rule", x1: 100, x2: 100, y1: 0, y2: 14 }));
  if (hasReach) picture.append(svg("rect", { class: "reach", x: at(low), y: 3, width: Math.max(1, at(high) - at(low)), height: 8, rx: 4 }));
  picture.append(svg("circle", { class: "value", cx: at(value), cy: 7, r: 5 }));
  return el("span", { class: "change" }, picture, ` ${words(value)}`, el("small", {}, hasReach ? ` [${words(low)}, ${words(high)}]${isShare ? " points" : ""}` : ""));
}
