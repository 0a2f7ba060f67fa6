"""The documentation site builds without a warning, is complete, and fetches nothing."""

import ast
import http.server
import importlib.util
import os
import re
import subprocess
import sys
import threading
import tomllib
from functools import cache, partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

import pettingllms

# The helper is shared with the viewer's tests and the pictures of the documents.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from browser import CHROMIUM, Browser, axe

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("mkdocs", "material", "mkdocstrings")
CODE = re.compile(r"(?P<file>[^:]+)(:(?P<name>[\w.]+))?")
TEST = re.compile(r"(?P<file>[^:]+)::(?P<name>test_\w+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the dependency group docs is not installed: {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class _Fetched(HTMLParser):
    """Collects what a browser would fetch to show a page."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if tag in ("script", "img", "iframe", "source"):
            self.addresses.append(values.get("src") or "")
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.addresses.append(values.get("href") or "")


@pytest.mark.slow
def test_pages_fetch_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        reader = _Fetched()
        reader.feed(page.read_text(encoding="utf-8"))
        outside = [a for a in reader.addresses if a.startswith(("http:", "https:", "//"))]
        assert not outside, page
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"(?:url\(|@import )['\"]?(?:https?:)?//", styles)


@pytest.mark.slow
def test_every_environment_has_a_page_with_a_whole_episode(site):
    for env_id in pettingllms.registered_ids():
        if pettingllms.spec(env_id).package != "pettingllms":
            continue
        text = (site / "environments" / f"{env_id}.html").read_text(encoding="utf-8")
        env = pettingllms.make(env_id, checks=False)
        assert "The episode ends after" in text
        for agent in env.possible_agents:
            assert f"Prompt of {pettingllms.role_of(agent)}" in text
        # With a moderator, who speaks at all depends on the episode.
        roles = map(pettingllms.role_of, env.possible_agents)
        assert all(re.search(rf"Turn \d+, {role}_\d", text) for role in roles)


@pytest.mark.slow
def test_no_mark_is_left_and_llms_txt_lists_pages(site):
    for page in site.rglob("*.html"):
        assert "<!-- generate" not in page.read_text(encoding="utf-8"), page
    listed = re.findall(r"\]\((.*)\)$", (site / "llms.txt").read_text("utf-8"), re.MULTILINE)
    assert "questions.md" in listed
    assert all((site / name).with_suffix(".html").is_file() for name in listed)
    assert "<!-- generate" not in "".join((site / name).read_text("utf-8") for name in listed)


@pytest.mark.slow
def test_every_key_and_every_command_is_described(site):
    from pettingllms_trainers.config import Config

    configuration = (site / "configuration.html").read_text(encoding="utf-8")
    for name in keys_of(Config):
        # a list of tables has a heading of its own
        is_list = f"[{name}]]" in configuration or f".{name}]]" in configuration
        assert f"<code>{name}</code>" in configuration or is_list, name
    commands = (site / "commands.html").read_text(encoding="utf-8")
    for name in ("list", "info", "play", "eval", "compare", "replay", "data", "new", "doctor"):
        assert f"pettingllms {name}" in commands


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture
def served(site, tmp_path):
    """A real browser, and the address of the site."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    browser = Browser(tmp_path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=site))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield browser, f"http://127.0.0.1:{server.server_port}"
    browser.close()
    server.shutdown()
    server.server_close()


@pytest.mark.nightly
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_no_page_keeps_anybody_out(served, site, width, scheme):
    if axe() is None:
        pytest.skip("axe-core cannot be fetched here (npm)")
    browser, address = served
    browser.size(width)
    browser.scheme(scheme)
    found = {}
    for page in sorted(site.rglob("*.html")):
        # The pages of the API, made by another tool, have no tables or long code of ours.
        if (name := page.relative_to(site).as_posix()).startswith("api/"):
            continue
        browser.call("Page.navigate", url=f"{address}/{name}")
        browser.until("document.readyState === 'complete' && document.querySelector('.md-main')")
        found |= {name: barriers} if (barriers := browser.barriers()) else {}
    assert not found


@pytest.mark.slow
def test_the_search_answers_what_is_asked_most(served):
    browser, address = served
    links = "[...document.querySelectorAll('.md-search-result__link')]"
    missed = {}
    questions = tomllib.loads(Path(__file__).with_name("questions.toml").read_text("utf-8"))
    for question, heading in questions.items():
        browser.call("Page.navigate", url=f"{address}/index.html?q={quote(question)}")
        browser.until(f"{links}.length > 1")
        found = browser.js(f"{links}.slice(0, 2).map((a) => a.href)")
        if not any(urlsplit(link).fragment == heading for link in found):
            missed[question] = found
    assert not missed


def test_run_files_of_the_guide_load(tmp_path):
    from pettingllms_trainers.config.loading import load_config

    pages = ("train", "curriculum", "several-environments", "updates")
    text = "".join((ROOT / "docs" / f"{page}.md").read_text("utf-8") for page in pages)
    blocks = re.findall(r"^```toml\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) == 6
    for block in blocks:
        (tmp_path / "run.toml").write_text(block)
        load_config(tmp_path / "run.toml", trust=True)


def test_every_example_is_described():
    text = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    for path in (ROOT / "examples").glob("*.py"):
        assert f"`{path.name}`" in text


def keys_of(section):
    for name, field in section.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            yield from keys_of(field.annotation)
        elif name not in ("policies", "per_role", "rewards"):  # tables of sections
            yield name


# The paper and the code --------------------------------------------------------------------------

INDEX = tomllib.loads((ROOT / "docs" / "paper.toml").read_text(encoding="utf-8"))
ROWS = [row for part in INDEX["part"] for row in part["rows"]]


@cache
def names_in(path):
    """All names that a module defines, methods as `Class.method`."""
    found = set()
    for decision in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(decision, ast.Assign | ast.AnnAssign):
            targets = decision.targets if isinstance(decision, ast.Assign) else [decision.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif hasattr(decision, "name"):
            found.add(decision.name)
            inner = decision.body if isinstance(decision, ast.ClassDef) else []
            found |= {f"{decision.name}.{part.name}" for part in inner if hasattr(part, "name")}
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["what"][:40])
def test_places_of_the_paper_index_exist(row):
    assert row["code"]
    assert row["tests"]
    for pattern, places in ((CODE, row["code"]), (TEST, row["tests"])):
        for place in places:
            match = pattern.fullmatch(place)
            assert match, place
            path = ROOT / match["file"]
            assert path.is_file(), place
            if match["name"]:
                assert match["name"] in names_in(path), place


def test_all_traps_are_listed():
    (traps,) = (part for part in INDEX["part"] if part["title"] == "Traps")
    assert len(traps["rows"]) == 19
