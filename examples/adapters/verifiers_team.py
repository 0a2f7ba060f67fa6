"""verifiers: a team, each agent with a trace of its own. Usage: SERVER_URL MODEL [HARNESS]."""

import asyncio
import sys

import verifiers.v1 as vf
from verifiers.v1.utils.loaders import env_config_type, load_environment

from pettingllms.adapters.verifiers import build

# verifiers finds an environment as a module that exports these two: here, this file.
Tasks, Team = build("plan_path_v0", num_tasks=3, team="proposer-planner", max_turns=2)
__all__ = ["Tasks", "Team"]


async def play(url: str, model: str, harness: str = "null") -> None:
    """Play every level against an OpenAI-compatible server."""
    agents = {name: {"harness": {"id": harness}} for name in ("proposer_0", "planner_0")}
    config = env_config_type("verifiers_team")(
        taskset={"id": "verifiers_team"}, interception={"type": "server"}, **agents
    )
    env = load_environment(config)
    client = vf.EvalClientConfig(base_url=url, api_key_var="OPENAI_API_KEY")
    async with env.serving():
        for task in env.taskset:
            episode = await env.run_episode(task, vf.ModelContext(model=model, client=client))
            rewards = {t.agent.name: t.rewards["return"].score for t in episode.traces}
            print(f"level {task.data.seed}: {rewards}")


if __name__ == "__main__":
    asyncio.run(play(*sys.argv[1:]))
