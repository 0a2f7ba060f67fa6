// One episode: its tree, its boards, and the candidate that is selected.

class Detail {
  constructor(store, go) {
    this.store = store;
    this.go = go;
    this.box = byId("detail");
    this.shown = null;
    this.episode = null;
  }

  // Opens an episode, or only moves the selection within the one that is open.
  async show(position, state) {
    if (position === null) {
      this.shown = this.episode = null;
      this.box.replaceChildren(el("p", { class: "hint" },
        this.store.length ? "No episode passes the filters." : "This run holds no episodes."));
      return;
    }
    if (this.shown !== position) {
      this.shown = position;
      const episode = await this.store.episode(position);
      if (this.shown !== position) return;
      this.episode = episode;
      this.box.scrollTop = 0;
      // What was searched for is opened where it stands, unless the address names another place.
      if (state.find && state.n === 0 && state.k === null) Object.assign(state, firstHit(this.decisions(state.role), state.find));
    }
    if (this.episode) this.draw(position, state);
  }

  // The decisions of the role that is filtered for, or all.
  decisions(role) {
    if (!this.episode) return [];
    return this.episode.decisions.filter((d) => !role || roleOf(d.agent) === role);
  }

  // The state's decision and candidate, within what the episode has; the branch taken by default. Of
  // identical candidates it is the first, or the one that was taken.
  selection(state) {
    const decisions = this.decisions(state.role);
    const n = Math.max(0, Math.min(decisions.length - 1, state.n));
    const decision = decisions[n];
    if (!decision || !decision.groups.length) return { n, k: 0, g: 0, c: null, decisions };
    const wanted = state.k === null ? decision.chosen ?? 0 : state.k;
    const g = groupOf(decision, Math.max(0, Math.min(decision.candidates.length - 1, wanted)));
    const other = state.c === null ? -1 : groupOf(decision, state.c);
    return { n, k: decision.groups[g].k, g, c: other < 0 || other === g ? null : decision.groups[other].k, decisions };
  }

  draw(position, state) {
    const { n, k, c, decisions } = this.selection(state);
    const scroll = this.box.querySelector(".tree-box")?.scrollLeft || 0;
    const parts = [this.header(position, state)];
    if (this.episode.cause) parts.push(el("p", { class: "notice" }, "The rollout failed: ", visible(this.episode.cause)));
    if (decisions.length) {
      const tree = drawTree(decisions, { n, k }, (n, k) => this.go({ n, k }));
      parts.push(el("div", { class: "tree-box", tabindex: "0", role: "region", "aria-label": "rollout tree" }, tree), treeLegend(decisions));
      const strip = this.strip(decisions, n);
      if (strip) parts.push(strip);
      parts.push(this.decision(decisions, n, k, c));
    } else {
      parts.push(el("p", { class: "hint" }, "No decision was taken."));
    }
    this.box.replaceChildren(...parts);
    const treeBox = this.box.querySelector(".tree-box");
    if (treeBox) {
      treeBox.scrollLeft = scroll;
      const x = n * TREE.column, wide = treeBox.clientWidth;
      if (x < scroll || x + TREE.column > scroll + wide) treeBox.scrollLeft = x - wide / 2 + TREE.column / 2;
    }
    markFound(this.box, state.find);
    const here = this.box.querySelector(".strip [aria-current]");
    if (here) here.parentNode.scrollLeft = here.offsetLeft - here.parentNode.clientWidth / 2 + here.clientWidth / 2;
  }

  header(position, state) {
    const { store, episode } = this, ending = store.index.endings[position];
    const returns = Object.entries(episode.returns).map(([agent, value]) => fact(`return of ${agent}`, signed(value)));
    const back = el("button", { type: "button", class: "back", onclick: () => this.go({ view: "list" }) }, "\u2190 Episodes");
    const step = (by, text, title) => el("button", { type: "button", title, onclick: () => this.go({ move: by }) }, text);
    return el("header", { class: "episode" }, back,
      el("h2", {}, visible(store.labelOf(position)), el("span", { class: "badge " + ending }, ENDINGS[ending][1])),
      el("div", { class: "steps" }, step(-1, "\u2191", "previous episode (p)"), step(1, "\u2193", "next episode (n)")),
      el("dl", { class: "facts" }, returns,
        fact("turns", String(store.index.num_turns[position])), fact("seed", episode.seed),
        fact("state", episode.state_hash.slice(0, 8)),
        figureNames([episode]).map((name) => fact(inWords(name), short(episode.figures[name])))));
  }

  // The boards in the order of play, each once; a press selects the decision before it.
  strip(decisions, n) {
    const frames = boardFrames(this.episode, decisions), first = boardOf(this.episode.decisions[0]);
    if (frames.length < 2) return null;
    const current = frames.filter((f) => f.i <= n && !f.isFinal).pop();
    return el("div", { class: "strip", role: "group", "aria-label": "boards" }, frames.map((frame) =>
      el("button", { type: "button", "aria-current": frame === current ? "step" : null,
        onclick: () => this.go({ n: frame.i, k: null }) },
      drawBoard(frame.board, first, `board, ${frame.text}`), el("span", {}, frame.text))));
  }

  decision(decisions, n, k, c) {
    const decision = decisions[n], candidate = decision.candidates[k];
    const all = this.episode.decisions, at = all.indexOf(decision);
    const title = el("h3", {}, `Turn ${decision.turn + 1} \u00b7 `, visible(decision.agent),
      decision.policy ? el("small", {}, " played by ", visible(decision.policy)) : null,
      candidate?.model ? el("small", {}, ", answered by ", visible(candidate.model)) : null);
    const section = el("section", { class: "decision" }, title,
      el("dl", { class: "facts" }, figureNames([decision]).map((name) => fact(inWords(name), short(decision.figures[name])))));
    if (decision.candidates.length > 1) section.append(this.table(decision, n, k), this.siblings(decision, n, k) || "");
    if (!candidate) return fill(section, {}, [el("p", { class: "hint" }, "All candidates failed.")]);
    const after = all[at + 1], isTaken = decision.chosen === k;
    const words = el("div", { class: "words" }, this.completion(decision, candidate, n, k, c));
    if (isTaken && after) words.append(...this.consequence(all, at));
    else if (isTaken && this.episode.final_board && !readBoard(this.episode.final_board)) {
      words.append(el("h4", {}, "The end"), plain(this.episode.final_board));
    }
    words.append(...this.prompt(all, at));
    section.append(el("div", { class: "columns" }, words, this.boards(decision, candidate, after, isTaken)));
    return section;
  }

  // One row for each group of identical candidates.
  table(decision, n, k) {
    const { candidates } = decision, figures = figureNames(candidates);
    const head = ["#", "action", "reward", "team", "local", "advantage", ...figures.map((name) => inWords(name))];
    const body = decision.groups.map((group) => {
      const c = candidates[group.k], members = group.members.map((m) => m + 1).join(", ");
      return el("tr", {
        class: (group.isTaken ? "taken " : "") + (group.k === k ? "selected" : ""), onclick: () => this.go({ n, k: group.k }),
      }, el("td", { title: group.members.length > 1 ? `identical: ${members}` : null }, String(group.k + 1),
        group.members.length > 1 ? el("small", {}, ` \u00d7${group.members.length}`) : null,
        group.isTaken ? el("span", { title: "the branch taken" }, " \u25c9") : null),
      el("td", { class: "action" }, el("span", {}, visible(actionOf(c))), flags(c)),
      [c.reward, c.team, c.local, c.advantage].map((value) => el("td", { class: "number" }, signed(value))),
      figures.map((name) => el("td", { class: "number" }, short(c.figures[name]))));
    });
    return el("div", { class: "table-box" }, el("table", { class: "candidates" },
      el("thead", {}, el("tr", {}, head.map((h) => el("th", {}, h)))), el("tbody", {}, body)));
  }

  // Where each candidate led, as small boards; none where no candidate changes the board.
  siblings(decision, n, k) {
    const before = boardOf(decision), first = boardOf(this.episode.decisions[0]);
    const led = decision.groups.map((group) => [group, readBoard(decision.candidates[group.k].board)]).filter(([, board]) => board);
    if (led.length < 2 || led.every(([, board]) => isSameBoard(board, before))) return null;
    return el("div", { class: "strip siblings", role: "group", "aria-label": "where each candidate led" }, led.map(([group, board]) => {
      const c = decision.candidates[group.k], count = group.members.length;
      const name = `${group.k + 1}${count > 1 ? ` \u00d7${count}` : ""}: ${endOf(c) ? ENDINGS[endOf(c)][1] : signed(c.reward)}`;
      return el("button", { type: "button", class: endOf(c) || "", "aria-current": group.k === k ? "true" : null,
        onclick: () => this.go({ n, k: group.k }) }, drawBoard(board, first, `board after candidate ${name}`), el("span", {}, name));
    }));
  }

  completion(decision, candidate, n, k, c) {
    const facts = [fact("reward", signed(candidate.reward)), fact("team", signed(candidate.team)), fact("local", signed(candidate.local))];
    if (isNumber(candidate.advantage)) facts.push(fact("advantage", signed(candidate.advantage)));
    for (const name of figureNames([candidate])) facts.push(fact(inWords(name), short(candidate.figures[name])));
    if (candidate.action) facts.push(fact("action", candidate.action));
    if (candidate.num_tokens !== null) facts.push(fact("tokens", String(candidate.num_tokens)));
    if (candidate.finish_reason === "length") facts.push(fact("truncated", "at the token limit"));
    const many = decision.candidates.length > 1;
    const which = many ? `Completion ${k + 1} of ${decision.candidates.length}` : "Completion";
    const taken = decision.chosen === k ? el("span", { class: "badge taken" }, "taken") : el("span", { class: "badge" }, "not taken");
    const ending = endOf(candidate);
    return [el("h4", {}, which, many ? taken : null, ending ? el("span", { class: "badge " + ending }, ENDINGS[ending][1]) : null),
      el("dl", { class: "facts" }, facts),
      candidate.parse_error === null ? null : el("p", { class: "error" }, "Could not be read: ", visible(String(candidate.parse_error))),
      candidate.cause === null ? null : el("p", { class: "error" }, "Made code fail: ", visible(String(candidate.cause))),
      candidate.reasoning ? el("details", { class: "reasoning" }, el("summary", {},
        `Reasoning, ${plural(candidate.reasoning.length, "character", "characters")}`), plain(candidate.reasoning)) : null,
      el("div", { class: "completion" }, rich(candidate.text)),
      tokenPanel(candidate), decision.groups.length > 1 ? this.comparing(decision, n, k, c) : null,
      c === null ? null : comparison(decision, k, c)];
  }

  // The choice of a sibling to compare the completion with.
  comparing(decision, n, k, c) {
    const others = decision.groups.filter((group) => group.k !== k);
    return el("label", { class: "choice" }, "Compare with ", el("select", {
      onchange: (event) => this.go({ n, k, c: event.target.value === "" ? null : Number(event.target.value) }),
    }, el("option", { value: "" }, "nothing"), others.map((group) => el("option", { value: group.k, selected: group.k === c },
      `${group.k + 1}${group.isTaken ? ", taken" : ""}: ${signed(decision.candidates[group.k].reward)}`))));
  }

  // What is read next that was not in a prompt before: results of code, calls and tests.
  consequence(all, at) {
    const next = all[at + 1], own = all.slice(at + 1).find((d) => d.agent === all[at].agent);
    const isHeard = next.turn !== all[at].turn || hears(all, all[at].agent, next.agent);
    const parts = [];
    for (const reader of new Set(own ? [next, own] : [next])) {
      const text = this.news(all, at, reader);
      if (!text) continue;
      const isOpen = reader === next ? isHeard : !isHeard;
      parts.push(el("details", { open: isOpen }, el("summary", {}, "New to ", visible(reader.agent), ` in turn ${reader.turn + 1}`),
        el("div", { class: "result" }, rich(text))));
    }
    if (parts.length === 1) parts[0].open = true;
    return parts.length ? [el("h4", {}, "What came of it"), ...parts] : [];
  }

  news(all, at, reader) {
    const earlier = all.slice(0, at + 1);
    const isFirst = !earlier.some((d) => d.agent === reader.agent);
    const text = isFirst ? userPart(reader.observation) : reader.observation;
    return newLines(text, earlier.map((d) => d.observation).join("\n"));
  }

  prompt(all, at) {
    const decision = all[at], text = decision.observation;
    const before = all.slice(0, at).reverse().find((d) => d.agent === decision.agent);
    const split = before ? sharedStart(text, before.observation) : text.length - userPart(text).length;
    const parts = [el("h4", {}, "Prompt")];
    const start = text.slice(0, split).trim();
    if (start) {
      const lines = plural(start.split("\n").length, "line", "lines");
      parts.push(el("details", {}, el("summary", {}, before ? `${lines} as in its prompt before` : `${lines} of instructions`), plain(start)));
    }
    parts.push(text.slice(split).trim() ? el("div", { class: "prompt" }, rich(text.slice(split).replace(/^\n+/, ""))) : "");
    return parts;
  }

  boards(decision, candidate, after, isTaken) {
    const first = boardOf(this.episode.decisions[0]);
    const before = boardOf(decision);
    if (!before) return null;
    const followed = isTaken ? (after ? boardOf(after) : readBoard(this.episode.final_board)) : null;
    const next = readBoard(candidate.board) || followed;
    const parts = [el("figure", {}, el("figcaption", {}, "Board"), drawBoard(before, first, "board before the action"))];
    if (next && !isSameBoard(before, next)) {
      parts.push(el("figure", {}, el("figcaption", {}, "Board after it"), drawBoard(next, first, "board after the action")));
    }
    return el("div", { class: "boards" }, parts);
  }
}

// Whether an agent's prompt ever quotes what another one wrote in the same turn: agents that act at
// the same time do not read each other.
function hears(all, writer, reader) {
  return all.some((d, at) => {
    const next = all[at + 1];
    if (d.agent !== writer || d.chosen === null || next?.agent !== reader || next.turn !== d.turn) return false;
    const lines = d.candidates[d.chosen].text.split("\n").map((line) => line.replace(/^#### */, "").trim());
    return lines.some((line) => line.length > 2 && !line.startsWith("```") && next.observation.includes(line));
  });
}

// The part of a prompt after the system part: behind the first blank line.
function userPart(text) {
  const at = text.indexOf("\n\n");
  return at < 0 ? text : text.slice(at + 2);
}

// Names of the further numbers of some records; a number that is 0 in all of them says nothing.
function figureNames(records) {
  return [...new Set(records.flatMap((record) => Object.keys(record.figures || {}).filter((name) => record.figures[name] !== 0)))];
}

// What a candidate's text asks for: as the environment read it, or else where the answer stands.
function actionOf(candidate) {
  if (candidate.action) return candidate.action;
  const blocks = [...candidate.text.matchAll(FENCE)], text = blocks.length ? blocks.at(-1)[2] : candidate.text;
  const line = text.trim().replace(/\s+/g, " ");
  if (!line) return "(nothing)";
  return line.length <= 160 ? line : blocks.length ? line.slice(0, 160) + " \u2026" : "\u2026 " + line.slice(-160);
}

// How the episode ended with a candidate; null where it went on.
function endOf(candidate) { return candidate.success ? "solved" : candidate.end; }

function flags(candidate) {
  const ending = endOf(candidate);
  return [candidate.parse_error === null ? null : el("span", { class: "flag", title: "could not be read" }, "unreadable"),
    ending ? el("span", { class: "flag " + (ending === "solved" ? "good" : "") }, ENDINGS[ending][1]) : null];
}

function fact(name, value) {
  return el("div", {}, el("dt", {}, visible(name)), el("dd", {}, visible(value)));
}

// The decision, and the candidate if it is in an answer, in which a text occurs first.
function firstHit(decisions, text) {
  for (const [n, { observation, candidates }] of decisions.entries()) {
    const k = candidates.findIndex((c) => c.text.includes(text));
    if (k >= 0) return { n, k };
    if (observation.includes(text)) return { n };
  }
  return {};
}

// Marks a text wherever it stands in an episode, opens what it is folded in, and scrolls to the first.
function markFound(box, text) {
  CSS.highlights?.delete("found");
  if (!text || !CSS.highlights) return;
  const ranges = [], nodes = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  while (nodes.nextNode()) {
    const { data } = nodes.currentNode;
    for (let at = data.indexOf(text); at >= 0; at = data.indexOf(text, at + text.length)) {
      ranges.push(new StaticRange({ startContainer: nodes.currentNode, startOffset: at, endContainer: nodes.currentNode, endOffset: at + text.length }));
    }
  }
  if (!ranges.length) return;
  CSS.highlights.set("found", new Highlight(...ranges));
  const [{ startContainer: { parentElement } }] = ranges;
  for (let fold = parentElement.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  parentElement.scrollIntoView({ block: "nearest" });
}
