"""OpenAI Agents SDK: two reasoners read two of four digits each, a judge names the largest of all.

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

        said = [await asked("reasoner_0", task[:2]), await asked("reasoner_1", task[2:])]
        return await asked("judge", " ".join(said))


TASKS = ["".join(digits) for digits in itertools.permutations("0123456789", 4)]

workflow = Workflow(
    run=run,
    reward=lambda task, answer: answer == max(task),
    roles=("reasoner_0", "reasoner_1", "judge"),
    tasks={"train": [task for task in TASKS if task not in TASKS[::5]], "test": TASKS[::5]},
    demonstrators={
        "right": lambda task, agent, messages, rng: max(messages[-1]["content"]),
        "any": lambda task, agent, messages, rng: rng.choice(
            messages[-1]["content"].replace(" ", "")
        ),
    },
)
