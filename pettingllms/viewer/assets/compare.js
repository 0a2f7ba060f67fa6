// What differs between two texts, word by word.

const MAX_CELLS = 4e6;

// Pieces [kind, text] that lead from one text to the other: kind is "same", "removed" or "added".
function differences(one, other) {
  const split = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [];
  let a = split(one), b = split(other);
  if (a.length * b.length > MAX_CELLS) {  // by lines, where words would take too long
    a = one.split(/(?<=\n)/);
    b = other.split(/(?<=\n)/);
  }
  if (a.length * b.length > MAX_CELLS) return one === other ? [["same", one]] : [["removed", one], ["added", other]];
  let start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const parts = [["same", a.slice(0, start)], ...longest(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ["same", a.slice(a.length - end)]];
  const joined = [];
  for (const [kind, words] of parts) {
    const text = words.join("");
    if (!text) continue;
    if (joined.length && joined.at(-1)[0] === kind) joined.at(-1)[1] += text;
    else joined.push([kind, text]);
  }
  return joined;
}

// By the longest common subsequence of two lists of words.
function longest(a, b) {
  const width = b.length + 1, table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1
        : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  const parts = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { parts.push(["same", [a[i++]]]); j++; }
    else if (i < a.length && (j === b.length || table[(i + 1) * width + j] >= table[i * width + j + 1])) parts.push(["removed", [a[i++]]]);
    else parts.push(["added", [b[j++]]]);
  }
  return parts;
}

// The difference of two candidates of a decision: their figures, and one text with marks.
function comparison(decision, k, c) {
  const one = decision.candidates[k], other = decision.candidates[c];
  const marks = { same: "span", removed: "del", added: "ins" };
  const parts = differences(one.text, other.text);
  const facts = ["reward", "team", "local", "advantage"].filter((name) => isNumber(one[name]) && isNumber(other[name]))
    .map((name) => fact(name, `${signed(one[name])} \u2192 ${signed(other[name])}`));
  const actions = one.action !== other.action && (one.action || other.action)
    ? el("p", { class: "actions" }, el("del", {}, visible(one.action ?? "unreadable")), " ", el("ins", {}, visible(other.action ?? "unreadable"))) : null;
  return el("section", { class: "comparison" }, el("h4", {}, `From ${k + 1} to ${c + 1}`), el("dl", { class: "facts" }, facts), actions,
    el("pre", { class: "text" }, parts.map(([kind, text]) => el(marks[kind], {}, visible(text)))),
    el("p", { class: "legend" }, el("span", {}, el("del", {}, `only in ${k + 1}`)), el("span", {}, el("ins", {}, `only in ${c + 1}`))));
}
