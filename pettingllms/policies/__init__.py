"""Policies: who answers the prompts of a role.

```python
policy = load_policy("openai:Qwen/Qwen3-4B@http://localhost:8000/v1")
answers = await policy.sample([Prompt(env.messages(agent), agent, seed=1)], 1, Sampling())
```

A policy is named by a text: `oracle` (or another scripted policy of the environment), `noise`,
`openai:MODEL@URL`, or `KIND:ARGUMENT` for a kind that an installed package announces in the
entry-point group `pettingllms.policies`.
"""

from pettingllms.policies.loading import (
    NoisePolicy,
    PolicyFactory,
    ScriptedPolicy,
    load_policy,
    loaded_policies,
    stays_here,
)
from pettingllms.policies.protocol import (
    ANY_HOST,
    Answer,
    Completion,
    Policy,
    PolicyFailure,
    PolicySettings,
    PolicyUnavailable,
    Prompt,
    Sampling,
    Usage,
    acted,
)

__all__ = [
    "ANY_HOST",
    "Answer",
    "Completion",
    "NoisePolicy",
    "Policy",
    "PolicyFactory",
    "PolicyFailure",
    "PolicySettings",
    "PolicyUnavailable",
    "Prompt",
    "Sampling",
    "ScriptedPolicy",
    "Usage",
    "acted",
    "load_policy",
    "loaded_policies",
    "stays_here",
]
