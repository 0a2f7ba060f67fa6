// The data of the run: blocks of base64 and gzip that are opened when they are needed.

const MAX_OPEN_BLOCKS = 12;

async function unpack(id) {
  const text = atob(byId(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

class Store {
  constructor(head, index) {
    this.head = head;
    this.index = index;
    this.blocks = new Map();
    this.numOpened = 0;
  }

  static async open() {
    const [head, index] = await Promise.all([unpack("head"), unpack("index")]);
    return new Store(JSON.parse(head), JSON.parse(index));
  }

  get length() {
    return this.head.num_episodes;
  }

  get roles() {
    return Object.keys(this.index.rewards);
  }

  keyOf(position) {
    return this.index.keys.map((column) => column[position]);
  }

  labelOf(position) {
    const { labels, keys } = this.index;
    if (labels.length === 1) return String(keys[0][position]);
    // what a set or a variant is called says what it is
    return labels.map((label, i) => (/^(set|variant)$/.test(label) ? "" : label + " ") + keys[i][position]).join(" \u00b7 ");
  }

  // The group of an episode (as a list of words), and its label within the group.
  rowLabel(position) {
    const label = this.labelOf(position), at = label.indexOf(" \u00b7 ");
    return this.index.labels.length > 2 ? [[label.slice(0, at)], label.slice(at + 3)] : [[], label];
  }

  // The followed path's reward: of a role's own actions, or the mean return of all agents.
  rewardOf(position, role) {
    if (role) {
      const column = this.index.rewards[role];
      return column ? column[position] : null;
    }
    let sum = 0, count = 0;
    for (const column of Object.values(this.index.returns)) {
      if (isNumber(column[position])) { sum += column[position]; count++; }
    }
    return count ? sum / count : null;
  }

  errorsOf(position, role) {
    const { errors } = this.index;
    const names = role ? [role] : Object.keys(errors);
    return names.reduce((sum, name) => sum + ((errors[name] || [])[position] || 0), 0);
  }

  blockOf(position) {
    const starts = this.index.block_starts;
    let low = 0, high = starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (starts[middle] <= position) low = middle; else high = middle - 1;
    }
    return low;
  }

  async lines(block) {
    const known = this.blocks.get(block);
    if (known) {
      this.blocks.delete(block);
      this.blocks.set(block, known);
      return known;
    }
    const lines = (await unpack(`block-${block}`)).split("\n");
    this.numOpened++;
    this.blocks.set(block, lines);
    if (this.blocks.size > MAX_OPEN_BLOCKS) this.blocks.delete(this.blocks.keys().next().value);
    return lines;
  }

  async episode(position) {
    const block = this.blockOf(position);
    const lines = await this.lines(block);
    const episode = JSON.parse(lines[position - this.index.block_starts[block]]);
    for (const decision of episode.decisions) decision.groups = siblingGroups(decision);
    return episode;
  }

  // Position of the episode with a key, or null.
  positionOf(key) {
    const { keys } = this.index;
    for (let i = 0; i < this.length; i++) {
      if (key.every((part, column) => keys[column][i] === part)) return i;
    }
    return null;
  }

  async summary() {
    return JSON.parse(await unpack("summary"));
  }

  async curves() {
    return JSON.parse(await unpack("curves"));
  }

  // Positions of the episodes in which a text occurs in a prompt or a completion.
  async find(text, onProgress, isCancelled) {
    const found = new Set();
    const starts = this.index.block_starts;
    const escaped = JSON.stringify(text).slice(1, -1)
      .replace(/[\u007f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
    for (let block = 0; block < starts.length; block++) {
      const lines = this.blocks.get(block) || (await unpack(`block-${block}`)).split("\n");
      lines.forEach((line, i) => {
        if (line.includes(escaped) && occurs(JSON.parse(line), text)) found.add(starts[block] + i);
      });
      onProgress((block + 1) / starts.length);
      await new Promise((resume) => setTimeout(resume));
      if (isCancelled()) return null;
    }
    return found;
  }
}

// Candidates of a decision that are one: the same text, and the same that came of it.
function siblingGroups(decision) {
  const groups = new Map();
  decision.candidates.forEach((c, k) => {
    const key = JSON.stringify([c.text, c.reward, c.success, c.parse_error]);
    if (!groups.has(key)) groups.set(key, { k, members: [], isTaken: false });
    const group = groups.get(key);
    group.members.push(k);
    if (k === decision.chosen) Object.assign(group, { k, isTaken: true });
  });
  return [...groups.values()];
}

function groupOf(decision, k) {
  return decision.groups.findIndex((group) => group.members.includes(k));
}

function occurs(episode, text) {
  return episode.decisions.some((decision) =>
    decision.observation.includes(text) || decision.candidates.some((c) => c.text.includes(text)));
}
