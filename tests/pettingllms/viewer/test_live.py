"""Pages of a running run, served on this machine."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from pettingllms.viewer import LiveServer, ViewerError


@pytest.fixture
def serve():
    """Return a function that serves runs until the end of the test."""
    servers = []

    def serve(*runs, **arguments):
        server = LiveServer(runs, **arguments)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        servers.append((server, thread))
        return server.url

    yield serve
    for server, thread in servers:
        server.close()
        thread.join()


@pytest.fixture
def running(training, write):
    """A run with one tree, and a function that appends another."""

    def line(step):
        decision = write.decision("tool_0", 0, [write.candidate(f"text {step}")])
        return write.tree(step, 0, [decision])

    run = training([line(1)], [{"step": 1, "role/tool/reward": 0.5}])

    def go_on(step):
        with (run / "metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "role/tool/reward": 0.5 + step / 10}) + "\n")
        with (run / "rollouts.jsonl").open("a") as file:
            file.write(json.dumps(line(step)) + "\n")

    return run, go_on


def read(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read()


def test_the_page_takes_over_what_is_new_and_keeps_what_is_open(browser, serve, running):
    run, go_on = running
    browser.open(serve(run), "#tab=episodes")
    assert browser.text("#count") == "1 episode"
    browser.js("document.querySelector('.tokens').open = true")
    go_on(2)
    browser.until("document.querySelector('#count').textContent === '2 episodes'")
    assert browser.js("document.querySelector('.tokens').open"), "the open episode stays as it is"
    assert browser.text("#live").startswith("live \u00b7 ")
    for number, (key, tab) in enumerate({"1": "overview", "3": "figures"}.items()):
        browser.press(key)
        chart = f"document.querySelector('#{tab} .chart .step')?.textContent"
        browser.until(f"{chart} === 'train step {2 + number}'")
        go_on(3 + number)
        browser.until(f"{chart} === 'train step {3 + number}'")


def test_several_runs_are_served_with_links(browser, serve, running, training, write):
    run, go_on = running
    other = training([], [{"step": 1, "rollout/success": 0.25}], name="other")
    browser.open(serve(run, other))
    links = browser.texts("a")
    assert links == ["run", "other"]
    go_on(2)
    browser.until("document.querySelector('tbody').textContent.includes('2 of ?')")
    browser.js("document.querySelector('a').click()")
    browser.until("document.querySelector('#overview .failures')?.textContent.includes('2 of 2')")


def test_a_server_that_has_ended_is_reported(browser, running):
    server = LiveServer([running[0]])
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    browser.open(server.url)
    server.close()
    thread.join()
    browser.until("document.querySelector('#live').textContent === 'not served any more'")
    browser.events.clear()  # the requests that failed


def test_only_this_machine_and_only_under_its_own_name(serve, running):
    url = serve(running[0])
    assert url.startswith("http://127.0.0.1:")
    address = url.removeprefix("http://").rstrip("/")

    def status(path="/", **headers):
        connection = http.client.HTTPConnection(address)
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status

    assert status() == 200
    assert status(Host=address.replace("127.0.0.1", "localhost")) == 200
    assert status(Host="evil.example") == 403, "a name that another site has pointed here"
    assert status("/config.toml") == status("/../config.toml") == status("/run/0/") == 404
    connection = http.client.HTTPConnection(address)
    connection.request("POST", "/")
    assert connection.getresponse().status == 501


def test_the_page_may_ask_its_own_server_and_nobody_else(serve, running):
    text = read(serve(running[0])).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "connect-src 'self'" in policy
    assert "default-src 'none'" in policy


def test_a_file_that_is_being_replaced_leaves_the_page(serve, running):
    run, go_on = running
    url = serve(run)
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text("[env")
    go_on(2)
    before = read(url + "version")
    (run / "config.toml").write_text(config)
    go_on(3)
    end = time.monotonic() + 60
    while read(url + "version") == before:  # it rests for a multiple of the time of a build
        assert time.monotonic() < end
        time.sleep(0.02)


def test_what_is_no_run_and_a_taken_port_are_refused(serve, running, tmp_path):
    with pytest.raises(ViewerError, match="does not exist"):
        LiveServer([tmp_path / "nothing"])
    port = int(serve(running[0]).rstrip("/").rpartition(":")[2])
    with pytest.raises(ViewerError, match="Name another port"):
        LiveServer([running[0]], port=port)


@pytest.mark.usefixtures("heard_sigint")
def test_command(running):
    command = [sys.executable, "-m", "pettingllms.cli", "view", str(running[0]), "--live"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    url = re.match(r"(http://127\.0\.0\.1:\d+/) \(Ctrl\+C ends it\)", line)[1]
    assert b"pettingllms" in read(url)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    process.stdout.close()
    assert not (running[0] / "view.html").exists()
