// The state of the page, which is in its address behind the #, and what changes it.

const DEFAULTS = { tab: "overview", view: "list", e: null, n: 0, k: null, c: null, ending: "", role: "", part: "", step: "", min: "", max: "",
  errors: "", find: "", sort: "order", theme: "" };
const TABS = [["overview", "Overview"], ["episodes", "Episodes"], ["figures", "Curves"], ["about", "About"]];
const FILTERS = ["ending", "role", "part", "step", "min", "max", "errors", "sort"];

const KEYS = [
  ["n  j", "next episode"], ["p  k", "previous episode"], ["Home  End", "first, last episode"],
  ["\u2192  \u2190", "next, previous decision"], ["\u2193  \u2191", "next, previous candidate"],
  ["Enter", "the candidate that was taken"], ["d", "difference from the candidate taken"], ["/", "to the filters"], ["x", "clear the filters"],
  ["1  2  3  4", "overview, episodes, curves, about"], ["t", "colours: system, light, dark"], ["?", "this list"],
  ["Esc", "close, leave a field, back to the list"],
];

class App {
  constructor(store) {
    this.store = store;
    this.state = this.read();
    this.found = null;
    this.positions = [];
    this.list = new EpisodeList(store, (position) => this.go({ e: position, n: 0, k: null, view: "detail" }));
    this.detail = new Detail(store, (change) => this.go(change));
    this.drawn = new Set();
    this.drawFrame();
    this.drawFilters();
    window.addEventListener("hashchange", () => {
      const { theme } = this.state;
      this.state = this.read();
      this.state.theme ||= theme;
      this.refresh(true);
    });
    document.addEventListener("keydown", (event) => this.press(event));
  }

  read() {
    const state = { ...DEFAULTS, tab: "" };
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
      if (name in DEFAULTS) state[name] = value;
    }
    for (const name of ["e", "n", "k", "c"]) {
      state[name] = /^\d+$/.test(state[name] ?? "") ? Number(state[name]) : DEFAULTS[name];
    }
    for (const name of ["min", "max"]) {
      if (state[name].trim() === "" || Number.isNaN(Number(state[name]))) state[name] = "";
    }
    if (!(state.sort in SORTS)) state.sort = "order";
    if (!TABS.some(([name]) => name === state.tab)) state.tab = "";
    // An address that names an episode or a filter is one of the episodes.
    const { tab, theme, ...others } = state;
    const isOfEpisodes = this.store.head.kind === "transcripts" || Object.entries(others).some(([name, value]) => value !== DEFAULTS[name]);
    state.tab = tab || (isOfEpisodes ? "episodes" : "overview");
    return state;
  }

  write() {
    const entries = Object.entries(this.state).filter(([name, value]) => name === "tab" || (value !== DEFAULTS[name] && value !== null));
    const hash = "#" + new URLSearchParams(entries);
    if (hash !== location.hash) history.replaceState(null, "", hash);
  }

  // Changes the state; `move` goes to a neighbour in the list.
  go({ move, ...change }) {
    if (move) {
      const at = this.positions.indexOf(this.state.e);
      const to = this.positions[Math.max(0, Math.min(this.positions.length - 1, at + move))];
      if (to !== undefined && to !== this.state.e) change = { e: to, n: 0, k: null };
    }
    if ("n" in change && !("k" in change)) change.k = null;
    if (!("c" in change) && ("e" in change || ("n" in change && change.n !== this.state.n))) change.c = null;
    const isNewView = change.view && change.view !== this.state.view;
    Object.assign(this.state, change);
    if (isNewView && change.view === "detail" && isNarrow()) history.pushState(null, "", location.hash);
    return this.refresh(FILTERS.some((name) => name in change));
  }

  // Takes over the data of a later moment; the open episode and its selection stay.
  async take(store) {
    const key = this.state.e === null ? null : this.store.keyOf(this.state.e);
    this.store = this.list.store = this.detail.store = store;
    this.state.e = this.detail.shown = key && store.positionOf(key);
    this.drawHead();
    if (!byId("filters").contains(document.activeElement)) this.drawFilterFields();
    if (this.state.find) await this.search(this.state.find);
    else if (this.state.e === null) await this.refresh(true);
    else { this.filter(); this.list.show(this.positions, this.state.e, this.state.role); }
    for (const name of ["overview", "figures"]) {
      this.drawn.delete(name);
      if (this.state.tab === name) await this.drawAgain(name);
    }
    return store.head.version;
  }

  // Draws a tab anew, with the same groups open, at the same place.
  async drawAgain(name) {
    const box = byId(name), { scrollTop } = box;
    const open = new Set([...box.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
    await this.drawOnce(name);
    box.querySelectorAll("details").forEach((group) => { group.open = open.has(group.firstChild.textContent); });
    box.scrollTop = scrollTop;
  }

  async drawOnce(name) {
    if (this.drawn.has(name)) return;
    this.drawn.add(name);
    await (name === "figures" ? drawFigures : drawSummary)(this.store);
  }

  filter() {
    const { state, store } = this;
    this.drawn.add("list");
    this.positions = selected(store, state, this.found);
    byId("count").textContent = this.positions.length === store.length
      ? plural(store.length, "episode", "episodes")
      : `${this.positions.length.toLocaleString("en")} of ${plural(store.length, "episode", "episodes")}`;
    this.fillFilters();
  }

  async refresh(isFiltered) {
    const { state, store } = this;
    if (isFiltered || !this.drawn.has("list")) this.filter();
    if (state.e === null) state.e = firstShown(store.index, this.positions, state.sort);
    else if (!this.positions.includes(state.e)) Object.assign(state, { e: this.positions[0] ?? null, n: 0, k: null, c: null });
    document.body.dataset.view = state.view;
    document.body.dataset.tab = state.tab;
    setTheme(state.theme);
    for (const [name] of TABS) {
      byId(name).hidden = name !== state.tab;
      byId(`tab-${name}`).setAttribute("aria-selected", String(name === state.tab));
    }
    this.write();
    if (state.tab === "figures" || state.tab === "overview") await this.drawOnce(state.tab);
    if (state.tab === "episodes") {
      this.list.show(this.positions, state.e, state.role);
      await this.detail.show(state.e, state);
    }
    document.body.dataset.blocks = String(store.numOpened);
  }

  drawFrame() {
    const { head } = this.store;
    byId("tabs").replaceChildren(...TABS.map(([name, text]) => el("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-controls": name, onclick: () => this.go({ tab: name }),
    }, name === "figures" && head.kind !== "training" ? "Figures" : text)));
    byId("theme").addEventListener("click", () => this.turnTheme());
    byId("help").replaceChildren(el("h3", {}, "Keyboard"), keyTable(),
      el("button", { type: "button", onclick: () => byId("help").close() }, "Close"));
    this.drawHead();
  }

  drawHead() {
    const { head } = this.store;
    drawTitle(head);
    byId("about").replaceChildren(
      el("h3", {}, "Run"), el("dl", { class: "facts wide" }, head.facts.map(([name, value]) => fact(name, value))),
      head.config ? el("details", {}, el("summary", {}, "Configuration"), plain(head.config)) : "",
      el("h3", {}, "Keyboard"), keyTable());
  }

  drawFilters() {
    const form = byId("filters");
    this.drawFilterFields();
    form.addEventListener("submit", (event) => { event.preventDefault(); this.search(form.elements.find.value); });
    form.addEventListener("reset", (event) => { event.preventDefault(); this.clear(); });
  }

  drawFilterFields() {
    const { store } = this, form = byId("filters");
    const change = (name) => (event) => this.go({ [name]: event.target.type === "checkbox" ? (event.target.checked ? "1" : "") : event.target.value });
    const choice = (name, text, options) => el("label", {}, text, el("select", { name, onchange: change(name) },
      options.map(([value, shown]) => el("option", { value }, visible(String(shown))))));
    const number = (name, text) => el("label", {}, text, el("input", { name, type: "number", step: "any", inputmode: "decimal", onchange: change(name) }));
    const endings = Object.keys(ENDINGS).filter((name) => name !== "solved" && store.index.endings.includes(name));
    const { labels, keys } = store.index, parts = labels.length > 1 ? [...new Set(keys[0])] : [];
    const steps = labels[1] === "step" ? [...new Set(keys[1])].sort((a, b) => a - b) : [];
    form.replaceChildren(
      choice("ending", "Outcome", [["", "all"], ["solved", "solved"], ["unsolved", "not solved"], ...endings.map((name) => [name, ENDINGS[name][1]])]),
      choice("role", "Role", [["", "all"], ...store.roles.map((role) => [role, role])]),
      parts.length > 1 ? choice("part", labels[0][0].toUpperCase() + labels[0].slice(1), [["", "all"], ...parts.map((p) => [p, p])]) : "",
      steps.length > 1 ? choice("step", "Step", [["", "all"], ...steps.map((s) => [s, s])]) : "",
      choice("sort", "Order", Object.entries(SORTS).map(([name, [text]]) => [name, text])),
      number("min", "Reward from"), number("max", "to"),
      el("label", { class: "check" }, el("input", { name: "errors", type: "checkbox", onchange: change("errors") }), "unreadable only"),
      el("button", { type: "reset", class: "link", title: "clear the filters (x)" }, "clear"),
      el("label", { class: "search" }, "Text in prompts and completions", 
        el("span", {}, el("input", { name: "find", type: "search" }), el("button", { type: "submit" }, "Find"))));
    form.elements.find.addEventListener("search", (event) => { if (!event.target.value) this.search(""); });
  }

  fillFilters() {
    const { elements } = byId("filters");
    for (const name of [...FILTERS, "find"]) {
      if (!elements[name]) continue;
      if (elements[name].type === "checkbox") elements[name].checked = Boolean(this.state[name]);
      else elements[name].value = this.state[name];
    }
  }

  clear() {
    this.found = null;
    return this.go({ ...Object.fromEntries(FILTERS.map((name) => [name, DEFAULTS[name]])), find: "" });
  }

  async search(text) {
    this.state.find = text;
    this.found = null;
    if (text) {
      const show = (part) => { byId("count").textContent = `searching ... ${Math.round(100 * part)} %`; };
      this.found = await this.store.find(text, show, () => this.state.find !== text);
      if (this.found === null) return;
    }
    await this.refresh(true);
  }

  turnTheme() {
    this.go({ theme: nextTheme(this.state.theme) });
  }

  // Goes to another decision (by dn) or candidate (by dk) of the open episode.
  step(dn, dk) {
    const { n, g, decisions } = this.detail.selection(this.state);
    if (!decisions.length) return;
    if (dn) { this.go({ n: Math.max(0, Math.min(decisions.length - 1, n + dn)), k: null }); return; }
    const { groups } = decisions[n], group = groups[Math.max(0, Math.min(groups.length - 1, g + dk))];
    if (group) this.go({ n, k: group.k });
  }

  // Shows the difference between the open candidate and the one that was taken (of that: the next
  // one), or no difference.
  compare() {
    const { n, k, g, c, decisions } = this.detail.selection(this.state);
    if (!decisions.length || decisions[n].groups.length < 2) return;
    const { groups } = decisions[n], other = groups.find((group) => group.isTaken && group.k !== k) ?? groups[(g + 1) % groups.length];
    this.go({ n, k, c: c === null ? other.k : null });
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const { key, target } = event, help = byId("help");
    if (key === "Escape") {
      if (target.closest("form")) target.blur();
      else if (!help.open) this.go({ view: "list" });
      return;
    }
    if (help.open || target.closest("input, select, textarea")) return;
    if (key === "Enter" && target.closest("button, summary, a")) return;
    const action = this.actions()[key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  actions() {
    const ends = (position) => () => this.go({ e: position ?? null, n: 0, k: null });
    const general = {
      ...Object.fromEntries(TABS.map(([tab], i) => [i + 1, () => this.go({ tab })])),
      t: () => this.turnTheme(), "?": () => byId("help").showModal(), x: () => this.clear(),
      "/": () => this.go({ tab: "episodes", view: "list" }).then(() => byId("filters").elements.ending.focus()),
    };
    if (this.state.tab !== "episodes") return general;
    return {
      ...general,
      n: () => this.go({ move: 1 }), j: () => this.go({ move: 1 }), p: () => this.go({ move: -1 }), k: () => this.go({ move: -1 }),
      Home: ends(this.positions[0]), End: ends(this.positions.at(-1)),
      ArrowRight: () => this.step(1, 0), ArrowLeft: () => this.step(-1, 0),
      ArrowDown: () => this.step(0, 1), ArrowUp: () => this.step(0, -1),
      Enter: () => this.go({ k: null, view: "detail" }), d: () => this.compare(),
    };
  }
}

function nextTheme(theme) {
  const order = ["", "light", "dark"];
  return order[(order.indexOf(theme) + 1) % order.length];
}

function drawTitle(head) {
  document.title = `${head.name} \u00b7 pettingllms`;
  byId("title").replaceChildren(visible(head.name));
  byId("subtitle").replaceChildren(visible(`${head.kind} \u00b7 ${head.env_id.replace(/[^:, ]*\//g, "")}`));
  byId("notices").replaceChildren(...head.notices.map((text) => el("p", { class: "notice", role: "status" }, visible(text))));
}

function isNarrow() {
  return matchMedia("(max-width: 760px)").matches;
}

function keyTable() {
  return el("table", { class: "keys" }, el("tbody", {}, KEYS.map(([keys, meaning]) =>
    el("tr", {}, el("th", {}, keys.split("  ").map((key) => el("kbd", {}, key))), el("td", {}, meaning)))));
}
