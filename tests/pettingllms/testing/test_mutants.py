"""The mutation suite of the conformance kit: every bad game is noticed, by a message that names it.

Each mutant is an honest game with one fault. `ACTS` change what an action does, `STEPS` what the
shell makes of it, `CLASSES` anything else.
"""

import random

import numpy as np
import pytest

from pettingllms import ParseError
from pettingllms.testing.interface import check_other_process
from pettingllms.types import TextSpace


def readable(action):
    return not isinstance(action, ParseError)


# Faults of `_act`: (environment, state, agent, action, the honest transition) -> transition ---


def success_on_any_answer(env, state, agent, action, done):
    hit = agent == "walker_0" and readable(action)
    return done._replace(terminated=hit, success=hit, team=float(hit))


def pays_every_action(env, state, agent, action, done):
    return done._replace(local=0.1 if readable(action) else done.local)


def pays_every_item(env, state, agent, action, done):
    return done._replace(local=0.02 * len(action) if readable(action) else done.local)


def pays_parse_errors(env, state, agent, action, done):
    return done if readable(action) else done._replace(local=0.01)


def pays_silence_of_the_team(env, state, agent, action, done):
    return done if readable(action) else done._replace(team=3.0)


def pays_late_solutions_more(env, state, agent, action, done):
    return done._replace(team=done.team + 0.1 * env.turn) if done.success else done


def pays_walking_away(env, state, agent, action, done):
    return done if done.success else done._replace(team=-done.team)


def success_without_end(env, state, agent, action, done):
    return done._replace(terminated=False)


def chance_of_its_own(env, state, agent, action, done):
    lucky = random.SystemRandom().random() < 0.5
    return done._replace(state=state) if lucky and agent == "walker_0" else done


def draws_from_random(env, state, agent, action, done):
    random.random()
    return done


def draws_from_numpy(env, state, agent, action, done):
    np.random.rand()
    return done


def infinite_reward(env, state, agent, action, done):
    return done._replace(local=float("inf"))


def costs_beyond_the_bounds(env, state, agent, action, done):
    return done if readable(action) else done._replace(local=-0.9)


def team_reward_beyond_the_bounds(env, state, agent, action, done):
    return done._replace(team=100 * done.team)


def undocumented_info(env, state, agent, action, done):
    return done._replace(info={**done.info, "mood": 1})


def raises_on_a_text(env, state, agent, action, done):
    if not readable(action):
        raise KeyError(action.reason)
    return done


def mutable_state(env, state, agent, action, done):
    return done._replace(state=done.state._replace(trail=[1]))


def facts_that_change(env, state, agent, action, done):
    facts = {name: (fact, [1]) for name, fact in done.info.items()}
    return done._replace(info=facts)


def memory_shared_by_forks(env, state, agent, action, done):
    env.memory.append(agent)
    return done._replace(local=-0.001 * len(env.memory))


def score_that_snapshots_lack(env, state, agent, action, done):
    env.score += 1
    return done._replace(local=-0.001 * env.score)


def counter_that_reset_leaves(env, state, agent, action, done):
    env.__dict__["counter"] = env.__dict__.get("counter", 0) + 1
    return done._replace(local=-0.001 * (env.counter % 7))


ACTS = [
    (success_on_any_answer, "All 6 levels are solved by: .*answering other levels"),
    (pays_every_action, "earns walker_0 .* without solving anything|after a detour"),
    (pays_every_item, "A solution does not earn more after a detour than at once"),
    (pays_parse_errors, r"The parse error 'no list .*' earns scout_0 \+0.01"),
    (pays_silence_of_the_team, "silence earns .* without solving anything"),
    (pays_late_solutions_more, "silence and then the oracle's solution earns"),
    (pays_walking_away, "and then the oracle's solution earns"),
    (success_without_end, "a success that does not terminate the episode"),
    (chance_of_its_own, "gave two episodes|differs between two environments"),
    (draws_from_random, "global `random`"),
    (draws_from_numpy, "numpy's global state"),
    (infinite_reward, "not finite"),
    (costs_beyond_the_bounds, r"the local part of \w+ is -0.9000, outside of the documented"),
    (team_reward_beyond_the_bounds, r"the team part of walker_0 is .*, outside of the documented"),
    (undocumented_info, "info keys that the docstring does not list: {'mood'}"),
    (raises_on_a_text, "Any text is a legal action .* KeyError"),
    (mutable_state, "The state is one immutable value.*|a state holds a list"),
    (facts_that_change, r"can be changed: infos.*\['executed'\]\[1\]: list"),
    (memory_shared_by_forks, "a fork has another future|changed the original"),
    (score_that_snapshots_lack, "restore.* its future"),
    (counter_that_reset_leaves, "played twice gave two episodes"),
]


@pytest.mark.parametrize(("fault", "message"), ACTS, ids=lambda v: getattr(v, "__name__", ""))
def test_faults_of_actions_are_named(corridor_env, faults, mention, fault, message):
    class Mutant(corridor_env):
        __doc__ = corridor_env.__doc__

        def reset(self, seed=None, options=None):
            self.memory, self.score = [], 0
            super().reset(seed, options)

        def _act(self, state, agent, action):
            return fault(self, state, agent, action, super()._act(state, agent, action))

    mention(faults(Mutant), message)


@pytest.mark.parametrize("size", [0.05, 1, 100])
def test_paying_every_step_towards_the_goal_and_taking_nothing_back(
    corridor_env, faults, mention, steps_towards, size
):
    class Mutant(corridor_env):
        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            if agent == "scout_0" or not readable(action) or not action:
                return done
            paid = size * steps_towards(state, done.state)
            return done._replace(team=paid + done.success)

    found = faults(Mutant)
    mention(found, "greedy with retreat and then the oracle's solution earns walker_0")
    if size >= 1:
        mention(found, "shuttle earns .* without solving anything, the oracle")
        mention(found, "greedy with retreat earns .* without solving anything, the oracle")


# Faults of `step`: (environment after an honest step, the agent that acted) ---------------------


def truncated_early(env, agent):
    env.truncations = dict.fromkeys(env.truncations, env.turn == 2)


def truncated_late(env, agent):
    if env.turn == env.max_turns and not env.infos[agent].get("late"):
        env.truncations = dict.fromkeys(env.truncations, False)
        env.max_turns += 1
        env.infos = {**env.infos, agent: {**env.infos[agent], "late": True}}


def unequal_flags(env, agent):
    ended = {other: flag and other == agent for other, flag in env.truncations.items()}
    env.truncations = ended


def both_flags(env, agent):
    env.truncations = {a: env.terminations[a] or flag for a, flag in env.truncations.items()}


def ended_one_turn_early(env, agent):
    if env.turn == env.max_turns - 1 and env.agent_selection == env.possible_agents[0]:
        env.terminations = dict.fromkeys(env.terminations, True)


def shaping_beside_the_parts_of_outcomes(env, agent):
    if env.reward == "outcome" and env.infos[agent].get("executed"):
        env.rewards = {**env.rewards, agent: env.rewards[agent] + 0.01}


def shaping_that_only_last_pays(env, agent):
    if env.reward == "outcome" and env.infos[agent].get("executed"):
        env._cumulative_rewards = {**env._cumulative_rewards, agent: 0.01}


def shortest_that_grows(env, agent):
    env.infos = {**env.infos, agent: {**env.infos[agent], "shortest": env.turn + 1}}


def timeouts_are_successes(env, agent):
    if any(env.truncations.values()):
        env.infos = {a: {**info, "success": True} for a, info in env.infos.items()}


def timeouts_are_called_the_end_and_successes(env, agent):
    timeouts_are_successes(env, agent)
    if any(env.truncations.values()):
        env.terminations, env.truncations = env.truncations, env.terminations


def success_of_one_agent(env, agent):
    other = next(a for a in env.infos if a != agent)
    env.infos = {**env.infos, other: {**env.infos[other], "success": False}}


def rewards_that_are_not_their_parts(env, agent):
    env.rewards = {other: reward / 2 for other, reward in env.rewards.items()}


STEPS = [
    (truncated_early, "truncated before max_turns"),
    (truncated_late, "More than max_turns turns were played|max_turns"),
    (unequal_flags, "Agents ended with different flags"),
    (both_flags, "terminated and truncated at once"),
    (ended_one_turn_early, "solves nothing plays 3, of 6 5: fewer than promised"),
    (shaping_beside_the_parts_of_outcomes, r"reward=\"outcome\" .* its parts sum to 0"),
    (shaping_that_only_last_pays, r"reward=\"outcome\" .*`last` pays \w+ 0.01"),
    (shortest_that_grows, "`shortest` changes during an episode"),
    (timeouts_are_successes, "A time-out is counted as success|of a silent team is a success"),
    (timeouts_are_called_the_end_and_successes, "the episode of a silent team is a success"),
    (success_of_one_agent, "gents differ about the success"),
    (rewards_that_are_not_their_parts, "its parts sum to"),
]


@pytest.mark.parametrize(("fault", "message"), STEPS, ids=lambda v: getattr(v, "__name__", ""))
def test_faults_of_steps_are_named(corridor_env, faults, mention, fault, message):
    class Mutant(corridor_env):
        def step(self, action):
            agent = self.agent_selection
            was_live = not (self.terminations[agent] or self.truncations[agent])
            super().step(action)
            if was_live:
                fault(self, agent)

    mention(faults(Mutant), message)


# Faults of everything else: the class of an honest game -> a mutant -----------------------------


def pay_by_length(base):
    class Mutant(base):
        def step(self, action):
            self.length = len(action or "")
            super().step(action)

        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            return done._replace(local=done.local + 1e-5 * self.length)

    return Mutant


def split_is_ignored(base):
    class Mutant(base):
        def __init__(self, *, longest=24, split=None, max_turns=4, alpha=1.0):
            super().__init__(longest=longest, max_turns=max_turns, alpha=alpha)

    return Mutant


def split_by_seed(base):
    class Mutant(base):
        def __init__(self, *, longest=24, split=None, max_turns=4, alpha=1.0):
            super().__init__(longest=longest, max_turns=max_turns, alpha=alpha)
            self.split_name = split

        def _generate(self, rng, options):
            return super()._generate(random.Random(f"{self.split_name} {rng.random()}"), options)

    return Mutant


def four_levels(base):
    class Mutant(base):
        def _generate(self, rng, options):
            return super()._generate(random.Random(rng.randrange(4)), options)

    return Mutant


def shorter_turns_than_given(base):
    class Mutant(base):
        def __init__(self, *, max_turns=4, **kwargs):
            super().__init__(max_turns=max(1, max_turns - 1), **kwargs)

    return Mutant


def hashes_without_the_position(base):
    class Mutant(base):
        def _state_json(self, state):
            return super()._state_json(state._replace(position=0, trail="", advice=""))

    return Mutant


def hashes_without_the_goal(base):
    class Mutant(base):
        def _fields(self, state, agent, turn):
            return {**super()._fields(state, agent, turn), "where": f"You are on {state.position}"}

        def _state_json(self, state):
            return super()._state_json(state._replace(length=0, goal=0, start=0))

    return Mutant


def longer_than_the_shortest(base):
    class Mutant(base):
        moves = 0

        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            info = {**done.info, "moves_used": len(done.state.trail)}
            return done._replace(info={**info, "shortest": abs(state.goal - state.start) + 1})

    return Mutant


def options_that_are_used_up(base):
    class Mutant(base):
        def _generate(self, rng, options):
            options.popitem()
            return super()._generate(rng, options)

    return Mutant


def unseeded_levels(base):
    class Mutant(base):
        def _generate(self, rng, options):
            return super()._generate(random.SystemRandom(), options)

    return Mutant


def one_level(base):
    class Mutant(base):
        def _generate(self, rng, options):
            return super()._generate(random.Random(0), options)

    return Mutant


def prompt_without_the_state(base):
    class Mutant(base):
        def _fields(self, state, agent, turn):
            shown = super()._fields(state, agent, turn)
            return {**shown, "where": "Somewhere.", "advice": "nothing"}

    return Mutant


def prompt_of_the_start(base):
    class Mutant(base):
        def _fields(self, state, agent, turn):
            state = state._replace(position=state.start, advice="")
            return super()._fields(state, agent, turn)

    return Mutant


def prompt_of_one_agent_without_the_state(base):
    class Mutant(base):
        def _fields(self, state, agent, turn):
            shown = super()._fields(state, agent, turn)
            return {**shown, "where": "Somewhere."} if agent == "scout_0" else shown

    return Mutant


def prompt_with_the_answer(base):
    class Mutant(base):
        def _fields(self, state, agent, turn):
            answer = self._scripted(state, agent, "oracle", random.Random(0))
            return {**super()._fields(state, agent, turn), "where": f"Answer {answer}"}

    return Mutant


def observing_counts(base):
    class Mutant(base):
        looks = 0

        def observe(self, agent):
            self.looks += 1
            return super().observe(agent)

        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            return done._replace(local=done.local - 0.001 * (self.looks % 5))

    return Mutant


def observing_changes_the_state(base):
    class Mutant(base):
        def observe(self, agent):
            self._state = self._state._replace(trail=self._state.trail + "L")
            return super().observe(agent)

    return Mutant


def references_change_the_state(base):
    class Mutant(base):
        asked = 0

        def _scripted(self, state, agent, policy, rng):
            self.asked += 1
            return super()._scripted(state, agent, policy, rng)

        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            return done._replace(local=done.local - 0.001 * (self.asked % 5))

    return Mutant


def messages_of_their_own(base):
    class Mutant(base):
        def messages(self, agent):
            return [*super().messages(agent), {"role": "user", "content": "Hurry."}]

    return Mutant


def spaces_of_their_own(base):
    class Mutant(base):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.action_spaces["scout_0"] = TextSpace(10)

    return Mutant


def restore_forgets_the_turn(base):
    class Mutant(base):
        def restore(self, snapshot):
            super().restore(snapshot)
            self.turn = 0

    return Mutant


def restore_forgets_the_rewards(base):
    class Mutant(base):
        def restore(self, snapshot):
            super().restore(snapshot)
            self.rewards = dict.fromkeys(self.rewards, 0.0)

    return Mutant


def oracle_that_is_wrong(base):
    class Mutant(base):
        def _scripted(self, state, agent, policy, rng):
            return super()._scripted(state, agent, "random", random.Random(0))

    return Mutant


def undocumented_argument(base):
    class Mutant(base):
        def __init__(self, *, longest=24, split=None, max_turns=4, alpha=1.0, secret=1):
            super().__init__(longest=longest, split=split, max_turns=max_turns, alpha=alpha)

    return Mutant


def bounds_in_words(base):
    class Mutant(base):
        __doc__ = base.__doc__.replace("in [-20, 20]", "in [low, high]")

    return Mutant


def shaped_in_any_case(base):
    class Mutant(base):
        def __init__(self, *, reward="shaped", **kwargs):
            super().__init__(**kwargs)

    return Mutant


CLASSES = [
    (pay_by_length, "Length is not paid"),
    (split_is_ignored, "the split is ignored or leaks"),
    (split_by_seed, "levels of the split .* are levels of .* too: the split is ignored or leaks"),
    (four_levels, "30 seeds gave 4 different initial states; at least 5 are needed"),
    (shorter_turns_than_given, "max_turns=3 makes episodes of 2 turns"),
    (hashes_without_the_position, "a state has the hash of another one that reads otherwise"),
    (hashes_without_the_goal, "a state has the hash of another one that reads otherwise"),
    (longer_than_the_shortest, r"oracle solves in \d+ moves, `shortest` is \d+"),
    (options_that_are_used_up, "changed what it was given as options"),
    (unseeded_levels, "two episodes"),
    (one_level, "30 seeds gave 1 different initial states"),
    (prompt_without_the_state, "reads the same in every episode: its prompt does not depend"),
    (prompt_of_the_start, "every agent reads the same in both: prompts do not depend on the state"),
    (prompt_of_one_agent_without_the_state, "scout_0 reads the same in every episode"),
    (prompt_with_the_answer, "All 6 levels are solved by: echoing the prompt"),
    (observing_counts, "An episode is the same whether or not it is watched"),
    (observing_changes_the_state, "observe changed the state"),
    (references_change_the_state, "An episode is the same whether or not it is watched"),
    (messages_of_their_own, "messages and observation differ"),
    (spaces_of_their_own, "different space objects"),
    (restore_forgets_the_turn, r"restore lost something: .*\bturn\b"),
    (restore_forgets_the_rewards, "restore lost something: rewards"),
    (oracle_that_is_wrong, "The oracle did not solve the episode"),
    (undocumented_argument, r"only real \['secret'\]"),
    (bounds_in_words, "bound 'low' is neither a number"),
    (shaped_in_any_case, r'with reward="outcome", not'),
]


@pytest.mark.parametrize(("mutant", "message"), CLASSES, ids=lambda v: getattr(v, "__name__", ""))
def test_faults_of_classes_are_named(corridor_env, faults, mention, mutant, message):
    mention(faults(mutant(corridor_env)), message)


def test_arguments_that_are_changed_are_named(corridor_env, faults, mention):
    class Mutant(corridor_env):
        def __init__(self, *, lengths=(), **kwargs):
            super().__init__(**kwargs)
            self.lengths = lengths

        def _generate(self, rng, options):
            self.lengths.sort()
            return super()._generate(rng, options)

    mention(faults(Mutant, lengths=[9, 4, 7]), "changed what it was given as lengths")


def test_choices_of_the_same_moment_that_are_seen_are_named(guess_env, faults, mention):
    class Mutant(guess_env):
        def _fields(self, state, agent, turn):
            return super()._fields(self._state, agent, turn)

    assert not faults(guess_env, simultaneous=True)
    found = faults(Mutant, simultaneous=True)
    mention(found, "guesser_0 reads what teller_0 has just chosen, and they choose at the same")


# Faults that show in another process only -------------------------------------------------------


def levels_by_hash(base):
    class Mutant(base):
        def _generate(self, rng, options):
            return super()._generate(random.Random(hash(f"level {rng.random()}")), options)

    return Mutant


def levels_by_the_order_of_a_set(base):
    class Mutant(base):
        def _generate(self, rng, options):
            words = {f"level {rng.random()}" for _ in range(8)}
            return super()._generate(random.Random(next(iter(words))), options)

    return Mutant


def texts_by_hash(base):
    class Mutant(base):
        def _fields(self, state, agent, turn):
            shown = super()._fields(state, agent, turn)
            return {**shown, "advice": f"{shown['advice']} {hash(agent) % 1000}"}

    return Mutant


@pytest.mark.parametrize("mutant", [levels_by_hash, levels_by_the_order_of_a_set, texts_by_hash])
@pytest.mark.parametrize("given", ["class", "arguments", "function"])
def test_what_depends_on_hash_is_named(corridor_env, faults, mention, mutant, given):
    kind = mutant(corridor_env)
    makers = {"class": (kind, {}), "arguments": (kind, {"longest": 30}), "function": (None, {})}
    maker, kwargs = makers[given]
    maker = maker or (lambda: kind(longest=30))
    mention(faults(maker, [check_other_process], **kwargs), "depend on `hash\\(\\)`")
