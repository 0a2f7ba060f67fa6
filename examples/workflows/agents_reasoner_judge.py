"""OpenAI Agents SDK: two reasoners name the larger of two digits, a judge decides.

Needs openai-agents. Train it from this folder: pettingllms-train agents_reasoner_judge.toml
"""

import itertools

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner

from pettingllms.workflows import Workflow


async def run(task, client):
    """Ask the reasoners one after the other, and then the judge with what they said."""
    async with client.async_openai() as chat:

        async def asked(name, text):
            model = OpenAIChatCompletionsModel(model=name, openai_client=chat)
            agent = Agent(name=name, model=model)
            config = RunConfig(tracing_disabled=True)
            return (await Runner.run(agent, text, run_config=config)).final_output

        said = [await asked(f"reasoner_{number}", task) for number in range(2)]
        return await asked("judge", f"{task} {' '.join(said)}")


PAIRS = ["".join(pair) for pair in itertools.permutations("0123456789", 2)]

workflow = Workflow(
    run=run,
    reward=lambda task, answer: answer == max(task),
    roles=("reasoner_0", "reasoner_1", "judge"),
    tasks={"train": [pair for pair in PAIRS if pair not in PAIRS[::5]], "test": PAIRS[::5]},
    demonstrators={
        "right": lambda task, agent, messages, rng: max(task),
        "any": lambda task, agent, messages, rng: rng.choice(task),
    },
)
