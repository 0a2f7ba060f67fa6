"""The conformance kit: does an environment keep every promise of the contract?

```python
from pettingllms.testing import check_env

check_env("my_game_v0")                          # an installed or registered id
check_env("my_game_v0", team="single", size=6)   # with arguments of the environment
check_env(MyGameEnv, size=6)                     # a class, or a function that makes an environment
print(check_env("my_game_v0"))                   # what was checked, skipped and measured
```
"""

from pettingllms.testing.cheap import CheapPolicy, search_cheap_policies
from pettingllms.testing.conformance import CHECKS, check_env, examine_env, promise_of
from pettingllms.testing.interface import check_documentation
from pettingllms.testing.play import HOSTILE_TEXTS, play, transcript_of
from pettingllms.testing.report import CheckReport, CheckStatus, ConformanceWarning, Finding

__all__ = [
    "CHECKS",
    "HOSTILE_TEXTS",
    "CheapPolicy",
    "CheckReport",
    "CheckStatus",
    "ConformanceWarning",
    "Finding",
    "check_documentation",
    "check_env",
    "examine_env",
    "play",
    "promise_of",
    "search_cheap_policies",
    "transcript_of",
]
