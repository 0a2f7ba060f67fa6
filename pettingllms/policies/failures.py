"""What a policy raises when it cannot answer.

```
PettingLLMsError
└── PolicyFailure (RuntimeError)   this prompt could not be answered; another one may be
    └── PolicyUnavailable          no prompt can be answered: wrong key, no such model, dead server
```
"""

from __future__ import annotations

from pettingllms.errors import PettingLLMsError


class PolicyFailure(PettingLLMsError, RuntimeError):
    """A prompt could not be answered, after all retries."""


class PolicyUnavailable(PolicyFailure):
    """No prompt can be answered, so that going on is pointless."""
