// Texts of models and environments: everything in them is shown, nothing is obeyed.

const UNSEEN = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u200b-\\u200f\\u2028-\\u202e" +
  "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]" +
  "|[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]", "g");
const MAX_CHARS = 20000;

// Control characters, lone surrogates and marks that reorder text become visible escapes.
function visible(text) {
  const parts = document.createDocumentFragment();
  let end = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (match.index > end) parts.append(text.slice(end, match.index));
    const code = match[0].charCodeAt(0).toString(16).padStart(4, "0");
    parts.append(el("span", { class: "unseen", title: "a character that is not printed" }, "\\u" + code));
    end = match.index + match[0].length;
  }
  parts.append(text.slice(end));
  return parts;
}

function plain(text, kind) {
  const box = el("pre", { class: "text " + (kind || "") });
  if (text === "") return fill(box, { class: "text empty" }, ["(nothing)"]);
  box.append(visible(text.slice(0, MAX_CHARS)));
  if (text.length > MAX_CHARS) {
    const rest = plural(text.length - MAX_CHARS, "more character", "more characters");
    const more = el("button", { type: "button", class: "link" }, `show ${rest}`);
    more.addEventListener("click", () => more.replaceWith(visible(text.slice(MAX_CHARS))));
    box.append("\n", more);
  }
  return box;
}

const FENCE = /^[ \t]*```[ \t]*([\w+-]*)[ \t]*\n([\s\S]*?)^[ \t]*```[ \t]*$/gm;

// Text with its fenced code set apart and coloured.
function rich(text) {
  if (text === "") return [plain("")];
  const parts = [];
  let end = 0;
  const add = (piece) => { if (piece.trim() !== "") parts.push(plain(piece.replace(/^\n+|\n+$/g, ""))); };
  for (const match of text.matchAll(FENCE)) {
    add(text.slice(end, match.index));
    parts.push(el("figure", { class: "code" },
      el("figcaption", {}, visible(match[1] || "code")), coloured(match[2].replace(/\n$/, ""), match[1])));
    end = match.index + match[0].length;
  }
  add(text.slice(end));
  return parts.length ? parts : [plain(text)];
}

const KEYWORDS = new Set(("False None True and as assert async await break class continue def del elif else " +
  "except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield").split(" "));
const TOKENS = /(#[^\n]*)|("""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|(\b\d[\w.]*)|([A-Za-z_]\w*)/g;

function coloured(code, language) {
  const box = el("pre", { class: "text" });
  if (!/^(python|py|python3)?$/i.test(language) || code.length > MAX_CHARS) {
    return plain(code);
  }
  let end = 0;
  for (const match of code.matchAll(TOKENS)) {
    const kind = match[1] ? "comment" : match[2] ? "string" : match[3] ? "number"
      : KEYWORDS.has(match[4]) ? "keyword" : null;
    if (!kind) continue;
    box.append(visible(code.slice(end, match.index)), el("span", { class: kind }, visible(match[0])));
    end = match.index + match[0].length;
  }
  box.append(visible(code.slice(end)));
  return box;
}

// Lines of a text that an earlier one does not have, without its board: what is newly read.
function newLines(text, earlier) {
  const known = new Set(earlier.split("\n"));
  const isBoardRow = readBoard(text) ? (line) => READERS.some(([, read]) => read(line)) : () => false;
  return text.split("\n").filter((line) => !known.has(line) && !isBoardRow(line)).join("\n").trim();
}

// Length of the part, up to a line break, that two prompts begin with alike.
function sharedStart(text, other) {
  let i = 0;
  while (i < text.length && i < other.length && text[i] === other[i]) i++;
  return i === text.length && i === other.length ? i : text.lastIndexOf("\n", i - 1) + 1;
}

// The name of a figure or metric in words.
function inWords(name) {
  return name.replace(/(^|\/)num_/, "$1").replaceAll("_", " ");
}
