// The state of the page, which stands in its address behind the #, and what changes it.

const DEFAULTS = { tab: "episodes", view: "list", e: null, n: 0, k: null, ending: "", role: "", part: "", min: "", max: "",
  errors: "", find: "", sort: "order", theme: "" };
const TABS = [["episodes", "Episodes"], ["figures", "Curves"], ["about", "About"]];
const FILTERS = ["ending", "role", "part", "min", "max", "errors", "sort"];

const KEYS = [
  ["n  j", "next episode"], ["p  k", "previous episode"], ["Home  End", "first, last episode"],
  ["\u2192  \u2190", "next, previous decision"], ["\u2193  \u2191", "next, previous candidate"],
  ["Enter", "the candidate that was taken"], ["/", "to the filters"], ["x", "clear the filters"],
  ["1  2  3", "episodes, curves, about"], ["t", "colours: system, light, dark"], ["?", "this list"],
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
    window.addEventListener("hashchange", () => { this.state = this.read(); this.refresh(true); });
    document.addEventListener("keydown", (event) => this.press(event));
  }

  read() {
    const state = { ...DEFAULTS };
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
      if (name in DEFAULTS) state[name] = value;
    }
    for (const name of ["e", "n", "k"]) {
      state[name] = /^\d+$/.test(state[name] ?? "") ? Number(state[name]) : DEFAULTS[name];
    }
    for (const name of ["min", "max"]) {
      if (state[name].trim() === "" || Number.isNaN(Number(state[name]))) state[name] = "";
    }
    if (!(state.sort in SORTS)) state.sort = "order";
    if (!TABS.some(([name]) => name === state.tab)) state.tab = "episodes";
    return state;
  }

  write() {
    const entries = Object.entries(this.state).filter(([name, value]) => value !== DEFAULTS[name] && value !== null);
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
    const isNewView = change.view && change.view !== this.state.view;
    Object.assign(this.state, change);
    if (isNewView && change.view === "detail" && isNarrow()) history.pushState(null, "", location.hash);
    return this.refresh(FILTERS.some((name) => name in change));
  }

  async refresh(isFiltered) {
    const { state, store } = this;
    if (isFiltered || !this.drawn.has("list")) {
      this.drawn.add("list");
      this.positions = selected(store, state, this.found);
      byId("count").textContent = this.positions.length === store.length
        ? plural(store.length, "episode", "episodes")
        : `${this.positions.length.toLocaleString("en")} of ${plural(store.length, "episode", "episodes")}`;
      this.fillFilters();
    }
    if (state.e === null) state.e = this.positions[0] ?? null;
    else if (!this.positions.includes(state.e)) Object.assign(state, { e: this.positions[0] ?? null, n: 0, k: null });
    document.body.dataset.view = state.view;
    document.body.dataset.tab = state.tab;
    fill(document.documentElement, { "data-theme": state.theme }, []);
    for (const [name] of TABS) {
      byId(name).hidden = name !== state.tab;
      byId(`tab-${name}`).setAttribute("aria-selected", String(name === state.tab));
    }
    this.write();
    if (state.tab === "figures" && !this.drawn.has("figures")) {
      this.drawn.add("figures");
      await drawFigures(store);
    }
    if (state.tab === "episodes") {
      this.list.show(this.positions, state.e, state.role);
      await this.detail.show(state.e, state);
    }
    document.body.dataset.blocks = String(store.numOpened);
  }

  drawFrame() {
    const { head } = this.store;
    document.title = `${head.name} \u00b7 pettingllms`;
    byId("title").replaceChildren(visible(head.name));
    byId("subtitle").replaceChildren(visible(`${head.kind} \u00b7 ${head.env_id}`));
    byId("tabs").replaceChildren(...TABS.map(([name, text]) => el("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-controls": name, onclick: () => this.go({ tab: name }),
    }, name === "figures" && head.kind !== "training" ? "Figures" : text)));
    byId("theme").addEventListener("click", () => this.turnTheme());
    byId("notices").replaceChildren(...head.notices.map((text) => el("p", { class: "notice", role: "status" }, visible(text))));
    byId("about").replaceChildren(
      el("h3", {}, "Run"), el("dl", { class: "facts wide" }, head.facts.map(([name, value]) => fact(name, value))),
      head.config ? el("details", {}, el("summary", {}, "Configuration"), plain(head.config)) : "",
      el("h3", {}, "Keyboard"), keyTable());
    byId("help").replaceChildren(el("h3", {}, "Keyboard"), keyTable(),
      el("button", { type: "button", onclick: () => byId("help").close() }, "Close"));
  }

  drawFilters() {
    const { store } = this, form = byId("filters");
    const change = (name) => (event) => this.go({ [name]: event.target.type === "checkbox" ? (event.target.checked ? "1" : "") : event.target.value });
    const choice = (name, text, options) => el("label", {}, text, el("select", { name, onchange: change(name) },
      options.map(([value, shown]) => el("option", { value }, visible(String(shown))))));
    const number = (name, text) => el("label", {}, text, el("input", { name, type: "number", step: "any", inputmode: "decimal", onchange: change(name) }));
    const endings = Object.keys(ENDINGS).filter((name) => name !== "solved" && store.index.endings.includes(name));
    const { labels, keys } = store.index, parts = labels.length > 1 ? [...new Set(keys[0])] : [];
    form.replaceChildren(
      choice("ending", "Outcome", [["", "all"], ["solved", "solved"], ["unsolved", "not solved"], ...endings.map((name) => [name, ENDINGS[name][1]])]),
      choice("role", "Role", [["", "all"], ...store.roles.map((role) => [role, role])]),
      parts.length > 1 ? choice("part", labels[0], [["", "all"], ...parts.map((p) => [p, p])]) : "",
      choice("sort", "Order", Object.entries(SORTS).map(([name, [text]]) => [name, text])),
      number("min", "Reward from"), number("max", "to"),
      el("label", { class: "check" }, el("input", { name: "errors", type: "checkbox", onchange: change("errors") }), "unreadable only"),
      el("button", { type: "reset", class: "link", title: "clear the filters (x)" }, "clear"),
      el("label", { class: "search" }, "Text in prompts and completions", 
        el("span", {}, el("input", { name: "find", type: "search" }), el("button", { type: "submit" }, "Find"))));
    form.addEventListener("submit", (event) => { event.preventDefault(); this.search(form.elements.find.value); });
    form.elements.find.addEventListener("search", (event) => { if (!event.target.value) this.search(""); });
    form.addEventListener("reset", (event) => { event.preventDefault(); this.clear(); });
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
    const order = ["", "light", "dark"];
    this.go({ theme: order[(order.indexOf(this.state.theme) + 1) % order.length] });
  }

  // Goes to another decision (by dn) or candidate (by dk) of the open episode.
  step(dn, dk) {
    const { n, k, decisions } = this.detail.selection(this.state);
    if (!decisions.length) return;
    if (dn) this.go({ n: Math.max(0, Math.min(decisions.length - 1, n + dn)), k: null });
    else this.go({ n, k: Math.max(0, Math.min(decisions[n].candidates.length - 1, k + dk)) });
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
      1: () => this.go({ tab: "episodes" }), 2: () => this.go({ tab: "figures" }), 3: () => this.go({ tab: "about" }),
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
      Enter: () => this.go({ k: null, view: "detail" }),
    };
  }
}

function isNarrow() {
  return matchMedia("(max-width: 760px)").matches;
}

function keyTable() {
  return el("table", { class: "keys" }, el("tbody", {}, KEYS.map(([keys, meaning]) =>
    el("tr", {}, el("th", {}, keys.split("  ").map((key) => el("kbd", {}, key))), el("td", {}, meaning)))));
}

async function main() {
  if (typeof DecompressionStream === "undefined") {
    byId("detail").replaceChildren(el("p", { class: "notice" },
      "This browser is too old to open the run (it lacks DecompressionStream). Any browser from 2023 on can."));
    return;
  }
  const app = new App(await Store.open());
  if (app.state.find) await app.search(app.state.find); else await app.refresh(true);
  document.body.dataset.ready = "yes";
}

main();
