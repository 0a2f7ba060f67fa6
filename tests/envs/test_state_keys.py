"""Where agents write texts, episodes meet in what counts, though their states differ."""

import json
import random
from collections import Counter

import pytest

import pettingllms
from pettingllms.testing.play import moments


def shares_met(env_id, worded, num_levels, num_episodes=4):
    """Return shares of decisions after the first that others of the level took: by key, by hash."""
    env = pettingllms.make(env_id, checks=False).unwrapped
    keys, hashes = Counter(), Counter()
    for seed in range(num_levels):
        for episode in range(num_episodes):
            env.reset(seed=seed)
            rng = random.Random(100 * seed + episode)
            for number, agent in enumerate(moments(env)):
                if number:
                    keys[seed, env.state_key()] += 1
                    hashes[seed, env.state_hash()] += 1
                policy = rng.choice(env.scripted_policies)
                env.step(worded(env.scripted_action(agent, policy, rng), rng))
    return [
        sum(count for count in counts.values() if count > 1) / counts.total()
        for counts in (keys, hashes)
    ]


def commented(text, rng):
    return text.replace("```python\n", f"```python\n# draft {rng.randrange(10**9)}\n")


def shouted(text, rng):
    return "".join(rng.choice((one.lower(), one.upper())) for one in text)


@pytest.mark.parametrize(("env_id", "worded"), [("code_v0", commented), ("search_v0", shouted)])
def test_episodes_meet_in_what_counts_and_not_in_their_texts(env_id, worded):
    by_key, by_hash = shares_met(env_id, worded, 4 if env_id == "code_v0" else 20)
    assert by_key > 0.3
    assert by_hash < 0.05


LINE = {
    "question": "Who founded Orvan Mills?",
    "answers": ["Edda Orvan"],
    "supporting": ["Orvan Mills"],
    "documents": [
        {"title": "Orvan Mills", "text": "It was founded by Edda Orvan."},
        {"title": "Edda Orvan", "text": "She was born in Sorn."},
        {"title": "Sorn", "text": "A town of mills."},
    ],
}


def after_searches(*queries):
    env = pettingllms.make("search_v0", checks=False, results=1).unwrapped
    env.reset(seed=0, options={"level": json.dumps(LINE)})
    for query in queries:
        env.step(f"#### {query}")
        env.step("#### more")
    return env


def test_of_a_search_all_documents_found_count_in_any_order():
    key = after_searches("mills founded", "born").state_key()
    assert key == after_searches("was born", "orvan mills founded").state_key()
    assert key != after_searches("mills founded", "town").state_key(), "of no use, and read"
    assert key != after_searches("mills founded").state_key(), "turns differ"
