// The rollout tree: one column per decision, one dot per candidate (identical ones share it), one line
// for the path taken.

const TREE = { column: 92, row: 24, left: 26, top: 54, radius: 8 };

// Candidates are coloured by how they compare within their group, where the run compares them (a
// group without advantages was dropped: all equal), and by reward elsewhere.
function isCompared(decisions) {
  return decisions.some((d) => d.candidates.some((c) => isNumber(c.advantage)));
}

function shade(value, most) {
  if (!isNumber(value) || Math.abs(value) < 1e-9) return "even";
  const level = Math.min(3, Math.ceil(Math.abs(value) / most * 3 - 1e-9));
  return (value > 0 ? "good" : "bad") + level;
}

function drawTree(decisions, selection, onSelect) {
  const { column, row, left, top, radius } = TREE;
  const tallest = Math.max(1, ...decisions.map((d) => d.groups.length));
  const width = left * 2 + column * Math.max(0, decisions.length - 1) + 40;
  const height = top + tallest * row + 10;
  const key = isCompared(decisions) ? "advantage" : "reward", worth = (candidate) => candidate[key];
  const values = decisions.flatMap((d) => d.candidates.map(worth)).filter(isNumber).map(Math.abs);
  const most = Math.max(1e-9, values.reduce((a, b) => Math.max(a, b), 0));
  const x = (n) => left + 14 + n * column;
  const y = (d, k) => top + row / 2 + (tallest - d.groups.length) * row / 2 + k * row;
  const picture = svg("svg", { class: "tree", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "rollout tree" });
  const edges = svg("g", {}), dots = svg("g", {});
  decisions.forEach((decision, n) => {
    const next = decisions[n + 1];
    if (next && decision.chosen !== null) {
      const from = [x(n) + radius, y(decision, groupOf(decision, decision.chosen))];
      next.groups.forEach((group, g) => edges.append(svg("path", {
        class: group.isTaken ? "edge taken" : "edge", d: curve(from, [x(n + 1) - radius, y(next, g)]) })));
    }
    const isTurn = n === 0 || decisions[n - 1].turn !== decision.turn;
    dots.append(
      svg("text", { class: "turn", x: x(n), y: 13 }, isTurn ? `turn ${decision.turn + 1}` : ""),
      svg("text", { class: "agent", x: x(n), y: 29 }, visible(decision.agent)));
    if (decision.chosen !== null) {
      dots.append(svg("text", { class: "value", x: x(n), y: 44 }, signed(decision.candidates[decision.chosen].reward)));
    }
    decision.groups.forEach((group, g) => dots.append(
      dot(decision, group, n, [x(n), y(decision, g)], shade(worth(decision.candidates[group.k]), most), selection, onSelect)));
  });
  picture.append(edges, dots);
  return picture;
}

function curve([x0, y0], [x1, y1]) {
  const middle = (x0 + x1) / 2;
  return `M${x0} ${y0}C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`;
}

function dot(decision, group, n, [x, y], colour, selection, onSelect) {
  const { k, isTaken, members } = group, candidate = decision.candidates[k];
  const isSelected = selection.n === n && members.includes(selection.k), count = members.length;
  const name = `${decision.agent}, turn ${decision.turn + 1}, candidate ${k + 1}` +
    (count > 1 ? ` \u00d7${count}` : "") + `: reward ${signed(candidate.reward)}` +
    (isNumber(candidate.advantage) ? `, advantage ${signed(candidate.advantage)}` : "") +
    (isTaken ? ", taken" : "") + (candidate.success ? ", solved" : "") +
    (candidate.parse_error === null ? "" : ", could not be read");
  const box = svg("g", {
    class: ["dot", colour, isTaken ? "taken" : "", isSelected ? "selected" : ""].join(" "), role: "button",
    "aria-label": name, "data-n": n, "data-k": k, onclick: () => onSelect(n, k),
  }, svg("title", {}, name), svg("circle", { class: "hit", cx: x, cy: y, r: 12 }),
  svg("circle", { class: "body", cx: x, cy: y, r: TREE.radius }));
  if (candidate.parse_error !== null) {
    box.append(svg("path", { class: "cross", d: `M${x - 3.2} ${y - 3.2}l6.4 6.4M${x + 3.2} ${y - 3.2}l-6.4 6.4` }));
  }
  if (candidate.success) box.append(svg("path", { class: "check", d: `M${x - 4} ${y + 0.5}l2.8 3l5 -6.4` }));
  if (count > 1) box.append(svg("text", { class: "count", x: x + 21, y: y + 4 }, "\u00d7" + count));
  return box;
}

function treeLegend(decisions) {
  const words = isCompared(decisions)
    ? [["good3", "better than its group"], ["even", "equal"], ["bad3", "worse"]]
    : [["good3", "reward above 0"], ["even", "0"], ["bad3", "below 0"]];
  return el("p", { class: "legend" }, words.map(([kind, text]) => el("span", { class: "key dotkey " + kind }, text)),
    el("span", {}, "blue: the branch taken and its rewards \u00b7 crossed out: could not be read \u00b7 \u2713 solved \u00b7 \u00d72: two identical candidates"));
}
