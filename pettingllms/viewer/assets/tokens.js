// The tokens of a completion, coloured by a figure, and what is known of the one that is pointed at.

const TOKEN_FIGURES = {
  logprob: ["log-probability", (value) => `${signed(value)} (${percent(Math.exp(value))})`],
  entropy: ["entropy", (value) => `${short(value)} nats`],
  advantage: ["advantage", signed],
};
const TOKEN_LEVELS = 5;

// Columns of a candidate's tokens by name; the advantage is that of the candidate, for every token,
// unless the run has recorded one per token.
function tokenColumns(candidate) {
  const { text, ...columns } = candidate.tokens;
  if (isNumber(candidate.advantage) && !columns.advantage) columns.advantage = text.map(() => candidate.advantage);
  return columns;
}

function tokenPanel(candidate) {
  if (!candidate.tokens) return null;
  const content = el("div", {});
  const box = el("details", { class: "tokens" }, el("summary", {}, plural(candidate.num_tokens, "token", "tokens")), content);
  box.addEventListener("toggle", () => { if (box.open && !content.childNodes.length) content.append(...tokenView(candidate)); });
  return box;
}

function tokenView(candidate) {
  const { text } = candidate.tokens, columns = tokenColumns(candidate), names = Object.keys(columns);
  const readout = el("p", { class: "readout", role: "status" });
  const cells = text.map((piece, i) => el("span", { class: "token", "data-i": i }, tokenText(piece)));
  const box = el("div", { class: "text token-box", tabindex: "0", role: "group", "aria-label": "tokens" }, cells);
  let current = 0;
  const point = (i) => {
    cells[current].classList.remove("current");
    current = Math.max(0, Math.min(cells.length - 1, i));
    cells[current].classList.add("current");
    readout.replaceChildren(`token ${current + 1} of ${text.length} `, el("code", {}, visible(JSON.stringify(text[current]))),
      names.map((name) => ` \u00b7 ${tokenFigure(name)[0]} ${tokenFigure(name)[1](columns[name][current])}`).join(""));
  };
  const paint = (name) => tokenLevels(columns[name]).forEach((level, i) => { cells[i].dataset.level = level; });
  for (const kind of ["pointerover", "click"]) {
    box.addEventListener(kind, (event) => { if (event.target.closest(".token")) point(Number(event.target.closest(".token").dataset.i)); });
  }
  box.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by) { event.preventDefault(); event.stopPropagation(); point(current + by); }
  });
  const choice = el("select", { onchange: (event) => paint(event.target.value) },
    names.map((name) => el("option", { value: name }, tokenFigure(name)[0])));
  paint(names[0]);
  point(0);
  return [el("label", { class: "choice" }, "Coloured by ", choice), box, readout];
}

function tokenFigure(name) {
  return TOKEN_FIGURES[name] || [inWords(name), short];
}

// 0 to TOKEN_LEVELS, by the distance from 0 as part of the column's maximum; with a sign.
function tokenLevels(values) {
  const most = values.reduce((a, v) => (isNumber(v) ? Math.max(a, Math.abs(v)) : a), 1e-9);
  return values.map((v) => (isNumber(v) ? Math.sign(v) * Math.round(Math.abs(v) / most * TOKEN_LEVELS) : 0));
}

function tokenText(piece) {
  if (piece === "") return "\u2205";
  return visible(piece.replace(/\n/g, "\u21b5\n"));
}
