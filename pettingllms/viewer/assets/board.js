// Boards in texts, drawn: mazes, boxes and number grids. What is none of them stays text.

const READERS = [
  ["boxes", (line) => symbols(line, /^[#@+$*._]$/) ||
    (/^[#@+$*. _]{3,}$/.test(line) && line.includes("#") ? [...line] : null)],
  ["maze", (line) => (/^[#.PG*]{3,}$/.test(line) ? [...line] : symbols(line, /^[#.PG*]$/))],
  ["numbers", (line) => {
    const tokens = line.trim().split(/[ |]+/);
    return tokens.length > 2 && tokens.every((t) => /^(\d{1,2}|[._])$/.test(t)) ? tokens : null;
  }],
];

// The symbols of a row that are divided by spaces, perhaps behind the row's number; or null.
function symbols(line, allowed) {
  const tokens = line.trim().split(/ +/);
  if (/^\d+$/.test(tokens[0])) tokens.shift();
  return tokens.length > 2 && tokens.every((t) => allowed.test(t)) ? tokens : null;
}

const VALID = {
  boxes: (rows) => rows.length > 2 && rows.some((row) => row.some((c) => c === "@" || c === "+")),
  maze: (rows) => rows.length > 2 && rows.some((row) => row.some((c) => c === "P" || c === "*")),
  numbers: (rows) => rows.length > 2 && rows.length === rows[0].length,
};

// The last board of a text: { kind, rows }, or null.
function readBoard(text) {
  if (!text) return null;
  const lines = text.split("\n");
  let best = null;
  for (const [kind, read] of READERS) {
    let rows = [];
    const close = (end) => {
      if (rows.length && VALID[kind](rows) && (!best || end > best.end)) best = { kind, rows, end };
      rows = [];
    };
    lines.forEach((line, number) => {
      const row = read(line.replace(/\r$/, ""));
      if (!row) { close(number); return; }
      if (kind !== "boxes" && rows.length && rows[0].length !== row.length) close(number);
      rows.push(row);
    });
    close(lines.length);
  }
  return best && { kind: best.kind, rows: best.rows };
}

const KNOWN_BOARDS = new WeakMap();

// The board on which a decision was taken: as the environment draws it, or as the prompt shows it.
function boardOf(decision) {
  if (!KNOWN_BOARDS.has(decision)) {
    KNOWN_BOARDS.set(decision, readBoard(decision.board) || readBoard(decision.observation));
  }
  return KNOWN_BOARDS.get(decision);
}

// The boards of some decisions of an episode in the order of play, each once, and its last one.
function boardFrames(episode, decisions) {
  const frames = [];
  decisions.forEach((decision, i) => {
    const board = boardOf(decision), last = frames[frames.length - 1];
    if (board && !(last && isSameBoard(last.board, board))) frames.push({ board, i, text: `turn ${decision.turn + 1}` });
  });
  const final = readBoard(episode.final_board);
  if (final) frames.push({ board: final, i: decisions.length - 1, text: "end", isFinal: true });
  return frames;
}

function isSameBoard(one, other) {
  return Boolean(one && other) && one.kind === other.kind &&
    JSON.stringify(one.rows) === JSON.stringify(other.rows);
}

// A drawing of a board; `first` is the episode's first one, whose numbers are the given ones.
function drawBoard(board, first, label) {
  const height = board.rows.length, width = Math.max(...board.rows.map((row) => row.length));
  const picture = svg("svg", {
    class: "board " + board.kind, viewBox: `-1 -1 ${width * 20 + 2} ${height * 20 + 2}`, role: "img",
    "aria-label": label || "board", width: Math.min(width * 20, 320), "data-kind": board.kind,
  }, svg("rect", { class: "ground", x: 0, y: 0, width: width * 20, height: height * 20 }));
  board.rows.forEach((row, r) => row.forEach((cell, c) => {
    const before = first && first.kind === board.kind && first.rows[r] ? first.rows[r][c] : null;
    picture.append(...drawCell(board.kind, cell, c * 20, r * 20, before));
  }));
  if (board.kind === "numbers") picture.append(...gridLines(width));
  return picture;
}

function drawCell(kind, cell, x, y, before) {
  if (kind === "numbers") {
    if (/^[0._]$/.test(cell)) return [];
    const isGiven = before === cell;
    return [
      svg("rect", { class: isGiven ? "given" : "filled", x, y, width: 20, height: 20 }),
      svg("text", { class: isGiven ? "number" : "number new", x: x + 10, y: y + 14.5 }, cell),
    ];
  }
  const parts = [];
  const square = (name, gap) => parts.push(svg("rect", {
    class: name, x: x + gap, y: y + gap, width: 20 - 2 * gap, height: 20 - 2 * gap, rx: gap ? 2.5 : 0 }));
  const circle = (name, radius) => parts.push(svg("circle", { class: name, cx: x + 10, cy: y + 10, r: radius }));
  if (cell === "#") square("wall", 0);
  else square("floor", 0.4);
  if (kind === "maze") {
    if (cell === "G" || cell === "*") { circle("goal", 7.5); circle("goal-core", 3.5); }
    if (cell === "P" || cell === "*") circle("player", 5.6);
  } else {
    if (cell === "." || cell === "*" || cell === "+") circle("goal", cell === "." ? 4.5 : 8);
    if (cell === "$" || cell === "*") square(cell === "*" ? "box placed" : "box", 3.4);
    if (cell === "@" || cell === "+") circle("player", 5.6);
  }
  return parts;
}

const BOX_SHAPES = { 4: [2, 2], 6: [2, 3], 8: [2, 4], 9: [3, 3], 10: [2, 5], 12: [3, 4], 16: [4, 4] };

function gridLines(size) {
  const [boxRows, boxCols] = BOX_SHAPES[size] || [size, size];
  const lines = [];
  for (let i = 0; i <= size; i++) {
    lines.push(
      svg("line", { class: i % boxCols ? "thin" : "thick", x1: i * 20, y1: 0, x2: i * 20, y2: size * 20 }),
      svg("line", { class: i % boxRows ? "thin" : "thick", x1: 0, y1: i * 20, x2: size * 20, y2: i * 20 }));
  }
  return lines;
}
