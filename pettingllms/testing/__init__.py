"""The conformance kit: does an environment keep every promise of the contract?

```python
from pettingllms.testing import check_env

check_env("my_game_v0")                          # an installed or registered id
check_env("my_game_v0", team="single", size=6)   # with arguments of the environment
check_env(lambda: MyGameEnv(size=6))             # or anything that makes a raw TextEnv
```
"""

from pettingllms.testing.conformance import CHECKS, check_env
from pettingllms.testing.documentation import check_documentation
from pettingllms.testing.play import HOSTILE_TEXTS, play, transcript_of

__all__ = [
    "CHECKS",
    "HOSTILE_TEXTS",
    "check_documentation",
    "check_env",
    "play",
    "transcript_of",
]
