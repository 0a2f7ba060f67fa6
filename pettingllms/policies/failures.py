"""What a policy raises when it cannot answer.

```
PettingLLMsError
└── PolicyFailure (RuntimeError)   this prompt could not be answered; another one may be
    └── PolicyUnavailable          no prompt can be answered: wrong key, no such model, dead server
```
"""

from __future__ import annotations

from pettingllms.errors import PettingLLMsError
from pettingllms.policies.protocol import Usage


class PolicyFailure(PettingLLMsError, RuntimeError):
    """A prompt could not be answered, after all retries."""

    usage = Usage()
    """What was spent on it: answers that could not be read cost tokens, too."""


class PolicyUnavailable(PolicyFailure):
    """No prompt can be answered, so that continuing is pointless."""
