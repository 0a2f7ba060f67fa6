"""Memory, Agents SDK: a session in SQLite remembers; another agent writes down what matters."""

from agents import Agent, Runner, SQLiteSession

session = SQLiteSession("guest")
host = Agent(name="Host", instructions="You know the guest.")
scribe = Agent(name="Scribe", instructions="Write down what to remember of this.")


async def main(lines):
    notes = []
    for line in lines:
        known = f"{line} (You know: {'; '.join(notes)})"
        answer = (await Runner.run(host, known, session=session)).final_output
        notes.append((await Runner.run(scribe, f"{line} {answer}")).final_output)
    return f"{len(await session.get_items())} items: {'; '.join(notes)}"
