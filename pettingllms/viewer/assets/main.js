// Opens the page: of one run, or of several; and takes over what is new when it is served.

const POLL_MS = 2000;

// Asks for the page's version, and takes the data over from the page of another one.
async function follow(version, take) {
  const light = byId("live");
  light.hidden = false;
  for (;;) {
    await new Promise((resume) => setTimeout(resume, POLL_MS));
    try {
      const answer = await fetch("version", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const latest = await answer.text();
      if (latest !== version) {
        const page = new DOMParser().parseFromString(await (await fetch("./", { cache: "no-store" })).text(), "text/html");
        document.querySelectorAll("script[type]").forEach((block) => block.remove());
        document.body.append(...page.querySelectorAll("script[type]"));
        version = await take();
      }
      fill(light, { class: "", title: "this page follows the run" }, [])
        .textContent = `live \u00b7 ${new Date().toLocaleTimeString("en-GB")}`;
    } catch (error) {
      fill(light, { class: "lost", title: String(error) }, []).textContent = "not served any more";
    }
  }
}

async function openRun() {
  const app = new App(await Store.open());
  if (app.state.find) await app.search(app.state.find); else await app.refresh(true);
  return [app.store.head.version, async () => app.take(await Store.open())];
}

async function openRuns(head) {
  const draw = async () => drawOverview(head, JSON.parse(await unpack("runs")));
  await draw();
  return [head.version, async () => { head = JSON.parse(await unpack("head")); await draw(); return head.version; }];
}

async function main() {
  if (typeof DecompressionStream === "undefined") {
    byId("detail").replaceChildren(el("p", { class: "notice" },
      "This browser is too old to open the run (it lacks DecompressionStream). Any browser from 2023 on can."));
    return;
  }
  const head = JSON.parse(await unpack("head"));
  const [version, take] = head.kind === "runs" ? await openRuns(head) : await openRun();
  document.body.dataset.ready = "yes";
  if (version) follow(version, take);
}

main();
