"""The mutation suite of the conformance kit: every bad game is noticed, by a message that names it.

Each mutant is an honest game with one fault. `acts` changes what an action does, `steps` what the
shell makes of it, `replaces` one method, and `class_of` anything else.
"""

import random
from functools import partial

import numpy as np
import pytest

from pettingllms import ParseError
from pettingllms.testing.interface import check_other_process
from pettingllms.types import TextSpace

FAULTS = {}
"""Name -> (the class of the honest game -> that of the mutant, what the kit must say)."""


def mutant_of(base, **methods):
    return type("Mutant", (base,), {"__doc__": base.__doc__, **methods})


def faults_of(methods_of):
    """A decorator of faults: an honest class, a fault and its arguments -> the changed methods."""

    def decorator(*arguments):
        def named(fault):
            *rest, message = arguments
            FAULTS[fault.__name__] = (
                lambda base: mutant_of(base, **methods_of(base, fault, *rest)),
                message,
            )
            return fault

        return named

    return decorator


def class_of(message):
    def named(mutant):
        FAULTS[mutant.__name__] = mutant, message
        return mutant

    return named


@faults_of
def replaces(base, fault, method):
    """A fault is given the environment, its honest method, and what that is called with."""

    def replaced(self, *arguments):
        return fault(self, partial(getattr(base, method), self), *arguments)

    return {method: replaced}


@faults_of
def acts(base, fault):
    """A fault is given the environment, the honest transition, and what `_act` is called with."""

    def act(self, state, agent, action):
        return fault(self, base._act(self, state, agent, action), state, agent, action)

    def reset(self, seed=None, options=None):
        self.memory, self.score = [], 0
        base.reset(self, seed, options)

    return {"_act": act, "reset": reset}


@faults_of
def steps(base, fault):
    """A fault is given the environment after an honest step, and the agent that acted."""

    def step(self, action):
        agent = self.agent_selection
        was_live = not (self.terminations[agent] or self.truncations[agent])
        base.step(self, action)
        if was_live:
            fault(self, agent)

    return {"step": step}


def readable(action):
    return not isinstance(action, ParseError)


RESULTS = {
    "earns walker_0 .* without solving anything|after a detour": lambda done, action: done._replace(
        local=0.1 if readable(action) else done.local
    ),
    "A solution earns no more after a detour than at once": lambda done, action: done._replace(
        local=0.02 * len(action) if readable(action) else done.local
    ),
    r"The parse error 'no list .*' earns scout_0 \+0.01": lambda done, action: (
        done if readable(action) else done._replace(local=0.01)
    ),
    "silence earns .* without solving anything": lambda done, action: (
        done if readable(action) else done._replace(team=3.0)
    ),
    "and then the oracle's solution earns": lambda done, action: (
        done if done.success else done._replace(team=-done.team)
    ),
    "a success that does not terminate the episode": lambda done, action: done._replace(
        terminated=False
    ),
    "invalid local reward: got inf": lambda done, action: done._replace(local=float("inf")),
    r"the local part of \w+ is -0.9000, outside of the documented": lambda done, action: (
        done if readable(action) else done._replace(local=-0.9)
    ),
    r"the team part of walker_0 is .*, outside of the documented": lambda done, action: (
        done._replace(team=100 * done.team)
    ),
    "info keys that the docstring does not list: {'mood'}": lambda done, action: done._replace(
        info={**done.info, "mood": 1}
    ),
    "The state is one immutable value.*|a state holds a list": lambda done, action: done._replace(
        state=done.state._replace(trail=[1])
    ),
}
"""What the kit must say -> a fault of what an action does."""


@pytest.mark.parametrize("message", RESULTS)
def test_faults_of_results_are_named(corridor_env, faults, mention, message):
    def act(self, state, agent, action):
        return RESULTS[message](corridor_env._act(self, state, agent, action), action)

    mention(faults(mutant_of(corridor_env, _act=act)), message)


@acts("All 6 levels are solved by: .*answering other levels")
def success_on_any_answer(env, done, state, agent, action):
    hit = agent == "walker_0" and readable(action)
    return done._replace(terminated=hit, success=hit, team=float(hit))


@acts("silence and then the oracle's solution earns")
def pays_late_solutions_more(env, done, state, agent, action):
    return done._replace(team=done.team + 0.1 * env.turn) if done.success else done


@acts("gave two episodes|differs between two environments")
def chance_of_its_own(env, done, state, agent, action):
    lucky = random.SystemRandom().random() < 0.5
    return done._replace(state=state) if lucky and agent == "walker_0" else done


@acts("global `random`")
def draws_from_random(env, done, state, agent, action):
    random.random()
    return done


@acts("numpy's global state")
def draws_from_numpy(env, done, state, agent, action):
    np.random.rand()
    return done


@acts("Any text is a legal action .* KeyError")
def raises_on_a_text(env, done, state, agent, action):
    if not readable(action):
        raise KeyError(action.reason)
    return done


@acts(r"can be changed: infos.*\['executed'\]\[1\]: list")
def facts_that_change(env, done, state, agent, action):
    facts = {name: (fact, [1]) for name, fact in done.info.items()}
    return done._replace(info=facts)


@acts("a fork has another future|changed the original")
def memory_shared_by_forks(env, done, state, agent, action):
    env.memory.append(agent)
    return done._replace(local=-0.001 * len(env.memory))


@acts("restore.* its future")
def score_that_snapshots_lack(env, done, state, agent, action):
    env.score += 1
    return done._replace(local=-0.001 * env.score)


@acts("played twice gave two episodes")
def counter_that_reset_leaves(env, done, state, agent, action):
    env.__dict__["counter"] = env.__dict__.get("counter", 0) + 1
    return done._replace(local=-0.001 * (env.counter % 7))


@steps("truncated before max_turns")
def truncated_early(env, agent):
    env.truncations = dict.fromkeys(env.truncations, env.turn == 2)


@steps("More than max_turns turns were played|max_turns")
def truncated_late(env, agent):
    if env.turn == env.max_turns and not env.infos[agent].get("late"):
        env.truncations = dict.fromkeys(env.truncations, False)
        env.max_turns += 1
        env.infos = {**env.infos, agent: {**env.infos[agent], "late": True}}


@steps("Agents ended with different flags")
def unequal_flags(env, agent):
    ended = {other: flag and other == agent for other, flag in env.truncations.items()}
    env.truncations = ended


@steps("terminated and truncated at once")
def both_flags(env, agent):
    env.truncations = {a: env.terminations[a] or flag for a, flag in env.truncations.items()}


@steps("solves nothing plays 3, of 6 5: fewer than promised")
def ended_one_turn_early(env, agent):
    if env.turn == env.max_turns - 1 and env.agent_selection == env.possible_agents[0]:
        env.terminations = dict.fromkeys(env.terminations, True)


@steps(r"reward=\"outcome\" .* its parts sum to 0")
def shaping_beside_the_parts_of_outcomes(env, agent):
    if env.reward == "outcome" and env.infos[agent].get("executed"):
        env.rewards = {**env.rewards, agent: env.rewards[agent] + 0.01}


@steps(r"reward=\"outcome\" .*`last` pays \w+ 0.01")
def shaping_that_only_last_pays(env, agent):
    if env.reward == "outcome" and env.infos[agent].get("executed"):
        env._cumulative_rewards = {**env._cumulative_rewards, agent: 0.01}


@steps("`shortest` changes during an episode")
def shortest_that_grows(env, agent):
    env.infos = {**env.infos, agent: {**env.infos[agent], "shortest": env.turn + 1}}


@steps("A time-out is counted as success|of a silent team is a success")
def timeouts_are_successes(env, agent):
    if any(env.truncations.values()):
        env.infos = {a: {**info, "success": True} for a, info in env.infos.items()}


@steps("the episode of a silent team is a success")
def timeouts_are_called_the_end_and_successes(env, agent):
    timeouts_are_successes(env, agent)
    if any(env.truncations.values()):
        env.terminations, env.truncations = env.truncations, env.terminations


@steps("gents differ about the success")
def success_of_one_agent(env, agent):
    other = next(a for a in env.infos if a != agent)
    env.infos = {**env.infos, other: {**env.infos[other], "success": False}}


@steps("its parts sum to")
def rewards_that_are_not_their_parts(env, agent):
    env.rewards = {other: reward / 2 for other, reward in env.rewards.items()}


@class_of("Length is not paid")
def pay_by_length(base):
    class Mutant(base):
        def step(self, action):
            self.length = len(action or "")
            super().step(action)

        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            return done._replace(local=done.local + 1e-5 * self.length)

    return Mutant


@class_of("the split is ignored or leaks")
def split_is_ignored(base):
    class Mutant(base):
        def __init__(self, *, longest=24, split=None, max_turns=4, alpha=1.0):
            super().__init__(longest=longest, max_turns=max_turns, alpha=alpha)

    return Mutant


@class_of("levels of the split .* are levels of .* too: the split is ignored or leaks")
def split_by_seed(base):
    class Mutant(base):
        def __init__(self, *, longest=24, split=None, max_turns=4, alpha=1.0):
            super().__init__(longest=longest, max_turns=max_turns, alpha=alpha)
            self.split_name = split

        def _generate(self, rng, options):
            return super()._generate(random.Random(f"{self.split_name} {rng.random()}"), options)

    return Mutant


@replaces("_generate", "30 seeds gave 4 different initial states; at least 5 are needed")
def four_levels(env, honest, rng, options):
    return honest(random.Random(rng.randrange(4)), options)


@class_of("max_turns=3 makes episodes of 2 turns")
def shorter_turns_than_given(base):
    class Mutant(base):
        def __init__(self, *, max_turns=4, **kwargs):
            super().__init__(max_turns=max(1, max_turns - 1), **kwargs)

    return Mutant


@replaces("_state_json", "a state has the hash of another one that reads or answers otherwise")
def hashes_without_the_position(env, honest, state):
    return honest(state._replace(position=0, trail="", advice=""))


@class_of("a state has the hash of another one that reads or answers otherwise")
def hashes_without_the_goal(base):
    class Mutant(base):
        def _fields(self, state, agent, turn):
            return {**super()._fields(state, agent, turn), "where": f"You are on {state.position}"}

        def _state_json(self, state):
            return super()._state_json(state._replace(length=0, goal=0, start=0))

    return Mutant


@class_of(r"oracle solves in \d+ moves, `shortest` is \d+")
def longer_than_the_shortest(base):
    class Mutant(base):
        moves = 0

        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            info = {**done.info, "moves_used": len(done.state.trail)}
            return done._replace(info={**info, "shortest": abs(state.goal - state.start) + 1})

    return Mutant


@replaces("_generate", "changed what it was given as options")
def options_that_are_used_up(env, honest, rng, options):
    options.popitem()
    return honest(rng, options)


@replaces("_generate", "two episodes")
def unseeded_levels(env, honest, rng, options):
    return honest(random.SystemRandom(), options)


@replaces("_generate", "30 seeds gave 1 different initial states")
def one_level(env, honest, rng, options):
    return honest(random.Random(0), options)


@replaces("_fields", "reads the same in every episode: its prompt does not depend")
def prompt_without_the_state(env, honest, state, agent, turn):
    shown = honest(state, agent, turn)
    return {**shown, "where": "Somewhere.", "advice": "nothing"}


@replaces("_fields", "every agent reads the same in both: prompts do not depend on the state")
def prompt_of_the_start(env, honest, state, agent, turn):
    state = state._replace(position=state.start, advice="")
    return honest(state, agent, turn)


@replaces("_fields", "scout_0 reads the same in every episode")
def prompt_of_one_agent_without_the_state(env, honest, state, agent, turn):
    shown = honest(state, agent, turn)
    return {**shown, "where": "Somewhere."} if agent == "scout_0" else shown


@replaces("_fields", "All 6 levels are solved by: echoing the prompt")
def prompt_with_the_answer(env, honest, state, agent, turn):
    answer = env._scripted(state, agent, "oracle", random.Random(0))
    return {**honest(state, agent, turn), "where": f"Answer {answer}"}


@replaces("observe", "observe changed the state")
def observing_changes_the_state(env, honest, agent):
    env._state = env._state._replace(trail=env._state.trail + "L")
    return honest(agent)


def counting(method):
    """A mutant whose rewards depend on how often a method was called that should only look."""

    def mutant(base):
        def counted(self, *arguments):
            self.calls += 1
            return getattr(base, method)(self, *arguments)

        def act(self, state, agent, action):
            done = base._act(self, state, agent, action)
            return done._replace(local=done.local - 0.001 * (self.calls % 5))

        return type("Mutant", (base,), {"calls": 0, method: counted, "_act": act})

    return mutant


for name, method in (("observing_counts", "observe"), ("asking_counts", "_scripted")):
    FAULTS[name] = counting(method), "An episode is the same whether or not it is watched"


@replaces("messages", "messages and observation differ")
def messages_of_their_own(env, honest, agent):
    return [*honest(agent), {"role": "user", "content": "Hurry."}]


@class_of("different space objects")
def spaces_of_their_own(base):
    class Mutant(base):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.action_spaces["scout_0"] = TextSpace(10)

    return Mutant


@replaces("restore", r"restore lost something: .*\bturn\b")
def restore_forgets_the_turn(env, honest, snapshot):
    honest(snapshot)
    env.turn = 0


@replaces("restore", "restore lost something: rewards")
def restore_forgets_the_rewards(env, honest, snapshot):
    honest(snapshot)
    env.rewards = dict.fromkeys(env.rewards, 0.0)


@replaces("_scripted", "The oracle did not solve the episode")
def oracle_that_is_wrong(env, honest, state, agent, policy, rng):
    return honest(state, agent, "random", random.Random(0))


@class_of(r"only real \['secret'\]")
def undocumented_argument(base):
    class Mutant(base):
        def __init__(self, *, longest=24, split=None, max_turns=4, alpha=1.0, secret=1):
            super().__init__(longest=longest, split=split, max_turns=max_turns, alpha=alpha)

    return Mutant


@class_of("bound 'low' is neither a number")
def bounds_in_words(base):
    class Mutant(base):
        __doc__ = base.__doc__.replace("in [-20, 20]", "in [low, high]")

    return Mutant


@class_of(r'with reward="outcome", not')
def shaped_in_any_case(base):
    class Mutant(base):
        def __init__(self, *, reward="shaped", **kwargs):
            super().__init__(**kwargs)

    return Mutant


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(corridor_env, faults, mention, fault):
    mutant, message = FAULTS[fault]
    mention(faults(mutant(corridor_env)), message)


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


def levels_by_hash(env, rng, options):
    return env.generate(random.Random(hash(f"level {rng.random()}")), options)


def levels_by_the_order_of_a_set(env, rng, options):
    words = {f"level {rng.random()}" for _ in range(8)}
    return env.generate(random.Random(next(iter(words))), options)


def texts_by_hash(env, state, agent, turn):
    shown = env.fields(state, agent, turn)
    return {**shown, "advice": f"{shown['advice']} {hash(agent) % 1000}"}


@pytest.mark.parametrize("fault", [levels_by_hash, levels_by_the_order_of_a_set, texts_by_hash])
@pytest.mark.parametrize("given", ["class", "arguments", "function"])
def test_what_depends_on_hash_is_named(corridor_env, faults, mention, fault, given):
    method = "fields" if fault is texts_by_hash else "generate"
    honest = getattr(corridor_env, f"_{method}")
    kind = mutant_of(corridor_env, **{method: honest, f"_{method}": fault})
    makers = {"class": (kind, {}), "arguments": (kind, {"longest": 30})}
    maker, kwargs = makers.get(given, (lambda: kind(longest=30), {}))
    mention(faults(maker, [check_other_process], **kwargs), "depend on `hash\\(\\)`")
