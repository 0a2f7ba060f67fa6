// The list of episodes: filtered, sorted, and drawn only where it is looked at.

const ROW_HEIGHT = 46;
const ENDINGS = {
  solved: ["\u2713", "solved"],
  answered: ["\u2717", "ended unsolved"],
  unreadable: ["\u2717", "ended unreadable"],
  tokens: ["\u2717", "ended at the token limit"],
  turns: ["\u2013", "out of turns"],
  code: ["\u2717", "made code fail"],
  context: ["\u2013", "outgrew the context"],
  time: ["\u2013", "out of time"],
  failed: ["!", "rollout failed"],
  unfinished: ["\u2026", "not finished"],
};

const SORTS = {
  order: ["as recorded", () => 0],
  best: ["highest reward", (store, role) => (a, b) => compare(store.rewardOf(b, role), store.rewardOf(a, role))],
  worst: ["lowest reward", (store, role) => (a, b) => compare(store.rewardOf(a, role), store.rewardOf(b, role))],
  longest: ["most turns", (store) => (a, b) => store.index.num_turns[b] - store.index.num_turns[a]],
  errors: ["most unreadable actions", (store, role) => (a, b) => store.errorsOf(b, role) - store.errorsOf(a, role)],
};

function compare(one, other) {
  return (isNumber(one) ? one : -Infinity) - (isNumber(other) ? other : -Infinity) || 0;
}

// Positions of the episodes that pass the filters of a state, in the wanted order.
function selected(store, state, found) {
  const { index } = store, positions = [];
  const least = state.min === "" ? -Infinity : Number(state.min);
  const most = state.max === "" ? Infinity : Number(state.max);
  const isBounded = least !== -Infinity || most !== Infinity;
  for (let i = 0; i < store.length; i++) {
    const ending = index.endings[i];
    if (state.ending === "unsolved" ? ending === "solved" : state.ending && ending !== state.ending) continue;
    if (state.part && String(index.keys[0][i]) !== state.part) continue;
    if (state.step && String(index.keys[1][i]) !== state.step) continue;
    if (state.role && !isNumber(index.rewards[state.role]?.[i])) continue;
    if (state.errors && !store.errorsOf(i, state.role)) continue;
    if (found && !found.has(i)) continue;
    if (isBounded) {
      const reward = store.rewardOf(i, state.role);
      if (!isNumber(reward) || reward < least || reward > most) continue;
    }
    positions.push(i);
  }
  if (state.sort !== "order") positions.sort(SORTS[state.sort][1](store, state.role));
  return positions;
}

// The position that is shown first: of a training run the newest episode, held-out before training,
// failed before solved, since the first steps show policies that are no longer there.
function firstShown({ labels, keys, endings }, positions, sort) {
  const steps = keys[labels.indexOf("step")];
  if (!steps || sort !== "order") return positions[0] ?? null;
  const rank = (i) => [steps[i], keys[0][i] === "held-out", endings[i] !== "solved", -i].map(Number);
  const isBefore = (one, other) => {
    const at = one.findIndex((value, place) => value !== other[place]);
    return at >= 0 && one[at] > other[at];
  };
  return positions.reduce((best, i) => best === null || isBefore(rank(i), rank(best)) ? i : best, null);
}

class EpisodeList {
  constructor(store, onOpen) {
    this.store = store;
    this.onOpen = onOpen;
    this.positions = [];
    this.current = null;
    this.role = "";
    this.box = byId("list");
    this.rows = byId("rows");
    this.box.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.rows.addEventListener("click", (event) => {
      const row = event.target.closest("[data-position]");
      if (row) this.onOpen(Number(row.dataset.position));
    });
  }

  show(positions, current, role) {
    this.positions = positions;
    this.current = current;
    this.role = role;
    fill(this.rows, {}, []).style.height = `${positions.length * ROW_HEIGHT}px`;
    this.reveal();
    this.draw();
  }

  reveal() {
    const at = this.positions.indexOf(this.current);
    if (at < 0) return;
    const top = at * ROW_HEIGHT, { scrollTop, clientHeight } = this.box;
    if (top < scrollTop) this.box.scrollTop = top;
    else if (top + ROW_HEIGHT > scrollTop + clientHeight) this.box.scrollTop = top + ROW_HEIGHT - clientHeight;
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - 4);
    const last = Math.min(this.positions.length, first + Math.ceil((this.box.clientHeight || 800) / ROW_HEIGHT) + 9);
    const rows = [];
    for (let at = first; at < last; at++) rows.push(this.row(at));
    this.rows.replaceChildren(...rows);
    fill(this.box, { "aria-activedescendant": this.current === null ? "" : `row-${this.current}` }, []);
  }

  row(at) {
    const { store } = this, position = this.positions[at], { index } = store;
    const [mark, meaning] = ENDINGS[index.endings[position]];
    const errors = store.errorsOf(position, this.role);
    const [details, label] = store.rowLabel(position);
    details.push(plural(index.num_turns[position], "turn", "turns"));
    if (errors) details.push(`${errors} unreadable`);
    const row = el("div", {
      class: "row", id: `row-${position}`, role: "option", "data-position": position,
      "aria-selected": String(position === this.current), "aria-setsize": this.positions.length, "aria-posinset": at + 1,
    },
    el("span", { class: "mark " + index.endings[position], title: meaning }, mark),
    el("span", { class: "what" }, el("b", {}, visible(label)), el("small", {}, visible(details.join(" \u00b7 ")))),
    el("span", { class: "reward" }, signed(store.rewardOf(position, this.role))));
    row.style.transform = `translateY(${at * ROW_HEIGHT}px)`;
    return row;
  }
}
