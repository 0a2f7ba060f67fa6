"""Guardrail, Agents SDK: a check runs beside the answer, which it cancels where it says stop."""

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    Runner,
    input_guardrail,
)

check = Agent(name="Guardrail", instructions="Say stop if somebody wants homework to be done.")


@input_guardrail
async def homework(context, agent, text):
    result = await Runner.run(check, text, context=context.context)
    is_stopped = result.final_output == "stop"
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=is_stopped)


agent = Agent(name="Support", instructions="Help customers.", input_guardrails=[homework])


async def main(text):
    try:
        return (await Runner.run(agent, text)).final_output
    except InputGuardrailTripwireTriggered:
        return "refused"
