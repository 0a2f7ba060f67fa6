"""OpenAI Agents SDK: two reasoners say whether a number is odd or even, a judge decides.

Needs openai-agents. Train it from this folder: pettingllms-train agents_reasoner_judge.toml --trust
"""

from agents import Agent, OpenAIResponsesModel, RunConfig, Runner
from agents.exceptions import ModelBehaviorError

from pettingllms.workflows import Workflow


async def run(task, client):
    """Ask the reasoners one after the other, and then the judge with what they said."""
    async with client.async_openai() as chat:

        async def asked(name, text):
            model = OpenAIResponsesModel(model=name, openai_client=chat)
            agent = Agent(name=name, model=model)
            config = RunConfig(tracing_disabled=True)
            return (await Runner.run(agent, text, run_config=config)).final_output

        said = [await asked(f"reasoner_{number}", task) for number in range(2)]
        return await asked("judge", f"{task} {' '.join(said)}")


def right(task, agent, messages, rng):
    """Return ``e`` for an even number, ``o`` for an odd one."""
    return "oe"[int(task) % 2 == 0]


workflow = Workflow(
    run=run,
    reward=lambda task, answer: answer == right(task, "judge_0", [], None),
    # The SDK raises where an answer was cut at the limit of tokens.
    misfit_errors=(ModelBehaviorError,),
    roles=("reasoner_0", "reasoner_1", "judge"),
    tasks={
        "train": [f"{number:03}" for number in range(1000) if number % 7],
        "test": [f"{number:03}" for number in range(0, 1000, 7)],
    },
    demonstrators={
        "right": right,
        "any": lambda task, agent, messages, rng: rng.choice("oe"),
    },
)
