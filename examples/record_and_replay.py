"""Record an episode, save it, and replay it to the same states."""

import random
import tempfile
from pathlib import Path

import pettingllms
from pettingllms.transcript import RecordTranscripts, Transcript


def main() -> None:
    """Play one episode with the oracle and replay its file."""
    with tempfile.TemporaryDirectory() as folder:
        env = RecordTranscripts(pettingllms.make("plan_path_v0", team="single"), folder)
        env.reset(seed=7)
        rng = random.Random(0)
        for agent in env.agent_iter():
            _, _, terminated, truncated, _ = env.last()
            done = terminated or truncated
            env.step(None if done else env.unwrapped.scripted_action(agent, "oracle", rng))
        (path,) = Path(folder).iterdir()
        transcript = Transcript.load(path)
    replayed = transcript.replay()  # raises ReplayDivergence at the first difference
    print(f"{path.name}: {len(transcript.steps)} steps, returns {transcript.returns()}")
    print(f"replayed to the same state: {replayed.state_hash() == env.state_hash()}")


if __name__ == "__main__":
    main()
