"""AG2 before 1.0: a group chat whose manager asks a model who speaks next.

Needs ag2[openai]<1.
"""

from arithmetic import NUMBERS, TASKS, is_right, one_of, solution
from autogen import ConversableAgent, LLMConfig
from autogen.agentchat import initiate_group_chat
from autogen.agentchat.group.patterns import AutoPattern

from pettingllms.workflows import Workflow


def run(task, client):
    """Return what the solver said last, if the checker ended the chat."""

    def config(role):
        return LLMConfig({"model": role, "base_url": client.base_url, "api_key": client.api_key})

    solver = ConversableAgent(
        name="solver",
        system_message="Answer with a number.",
        description="Solves tasks.",
        llm_config=config("solver"),
        human_input_mode="NEVER",
    )
    checker = ConversableAgent(
        name="checker",
        system_message="Say DONE when the answer is right, else what is wrong.",
        description="Checks answers.",
        llm_config=config("checker"),
        human_input_mode="NEVER",
        is_termination_msg=lambda message: "DONE" in (message.get("content") or ""),
    )
    pattern = AutoPattern(
        agents=[solver, checker],
        initial_agent=solver,
        # Has the floor where the manager names nobody. Without one, AG2 asks at the keyboard.
        user_agent=ConversableAgent(name="user", human_input_mode="NEVER", llm_config=False),
        group_manager_args={
            "name": "manager",
            "llm_config": config("manager"),
            "is_termination_msg": lambda message: "DONE" in (message.get("content") or ""),
        },
    )
    result, _, _ = initiate_group_chat(pattern=pattern, messages=task, max_rounds=5)
    said = [m["content"] for m in result.chat_history if m.get("name") == "solver"]
    is_done = any("DONE" in (m.get("content") or "") for m in result.chat_history)
    return said[-1] if said and is_done else None


def right(task, agent, messages, rng):
    """Solve the task, let the checker speak, and let it end the chat."""
    return {"solver_0": solution(task), "checker_0": "DONE", "manager_0": "checker"}[agent]


ANSWERS = {
    "solver_0": NUMBERS,
    "checker_0": ["DONE", "Wrong."],
    "manager_0": ["solver", "checker"],
}

workflow = Workflow(
    run=run,
    reward=is_right,
    roles=("solver", "checker", "manager"),
    tasks=TASKS,
    max_turns=4,
    demonstrators={"right": right, "any": one_of(ANSWERS)},
)
