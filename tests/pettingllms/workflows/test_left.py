"""Clients that leave before they are answered and ask again: a lost answer is not a turn."""

import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

LATE_S = 1.0
"""How long the policy takes, which is longer than the client waits."""


def hasty(client, max_retries, timeout=0.4):
    return client.openai().with_options(timeout=timeout, max_retries=max_retries)


def said(client, text):
    found = client.chat.completions.create(
        model="planner", messages=[{"role": "user", "content": text}]
    )
    return found.choices[0].message.content


def patient(task, client):
    """Asks again until it is answered, as OpenAI's client does by itself."""
    asker = hasty(client, 8)
    return int(said(asker, "one")) + int(said(asker, "two"))


def impatient(task, client):
    """Gives up after the first try, and raises."""
    return int(said(hasty(client, 0), "one")) + int(said(hasty(client, 0), "two"))


def with_another_question(task, client):
    """Gives up after the first try, and asks something else."""
    try:
        return int(said(hasty(client, 0), "one")) + int(said(client.openai(), "two"))
    except openai.APITimeoutError:
        return int(said(client.openai(), "shorter, please"))


@pytest.mark.parametrize("run", [patient, impatient, with_another_question])
@pytest.mark.parametrize("num_forks", [0, 2])
def test_every_answer_is_received_once_and_is_one_turn(opened, run, num_forks):
    received = []

    def noted(task, client):
        received.append(run(task, client))
        return received[-1]

    env = opened(noted, reward=lambda task, outcome: float(outcome))
    for text in ("3", "4"):
        time.sleep(LATE_S)  # the policy thinks, and the client leaves
        env.expect([text] * (1 + num_forks))
        forks = [env.fork() for _ in range(num_forks)]
        env.step(text)
        for fork in forks:
            fork.step(text)
            assert fork.state_hash() == env.state_hash()
            assert fork.rewards == env.rewards
    assert [call.text for call in env.state().calls] == ["3", "4"]
    assert [call.request.messages[-1].content for call in env.state().calls] == ["one", "two"]
    assert env.end == "answered"
    assert env.rewards["planner_0"] == 7.0
    assert set(received) == {7}


def test_an_answer_that_was_sent_and_did_not_come_is_given_again(played):
    """What a retry of the client says in its head counts, not that the request is equal."""

    def run(client):
        body = {"model": "planner", "messages": [{"role": "user", "content": "one"}]}
        ask = client.openai().chat.completions.create
        again = {"x-stainless-retry-count": "1"}
        texts = [ask(**body, extra_headers=head) for head in ({}, again, {})]
        return [one.choices[0].message.content for one in texts]

    requests, texts = played(run, "3", "4")
    assert (len(requests), texts) == (2, ["3", "3", "4"])


def test_equal_requests_of_a_team_stay_apart_when_one_is_sent_again(opened):
    """Each has an answer of its own, whoever of them leaves and comes again."""

    def run(task, client):
        askers = [client.openai(), hasty(client, 8)]
        with ThreadPoolExecutor(2) as threads:
            return sorted(threads.map(lambda asker: said(asker, "one"), askers))

    outcomes = []
    env = opened(run, reward=lambda task, outcome: outcomes.append(outcome) or 1.0)
    env.step("3")
    time.sleep(LATE_S)
    env.step("4")
    assert outcomes[-1] == ["3", "4"]
    assert len(env.state().calls) == 2
