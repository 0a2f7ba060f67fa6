"""Judge loop, Agents SDK: an outline is written again until a judge lets it pass."""

from dataclasses import dataclass
from typing import Literal

from agents import Agent, Runner, TResponseInputItem


@dataclass
class Verdict:
    feedback: str
    score: Literal["pass", "needs_improvement"]


writer = Agent(name="Writer", instructions="Write a short outline; use any feedback.")
judge = Agent(name="Judge", instructions="Judge the outline.", output_type=Verdict)


def main():
    items: list[TResponseInputItem] = [{"role": "user", "content": input("What story? ")}]
    while True:
        written = Runner.run_sync(writer, items)
        items = written.to_input_list()
        verdict: Verdict = Runner.run_sync(judge, items).final_output
        if verdict.score == "pass":
            print(written.final_output)
            raise SystemExit(0)
        items.append({"role": "user", "content": f"Feedback: {verdict.feedback}"})
