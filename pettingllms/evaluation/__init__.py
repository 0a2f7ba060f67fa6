"""Evaluation: play held-out levels with policies, keep every episode, report with intervals.

```python
team = {"tool": "oracle", "planner": "oracle"}
plan = EvaluationPlan(env_id="plan_path_v0", variants={"main": team})
folder = RunFolder.create("runs/oracle", plan)
evaluate(folder)
print(summarise(folder.plan, folder.results()).variants["main"].success)
```
"""

from pettingllms.errors import RunFolderError
from pettingllms.evaluation.blame import Blame, BlameSettings, Seat, judge
from pettingllms.evaluation.episode import EpisodeResult, RoleResult
from pettingllms.evaluation.plan import EvaluationPlan, distinct_levels, level_seed
from pettingllms.evaluation.report import (
    Comparison,
    Report,
    VariantReport,
    compare,
    summarise,
    summarise_variant,
)
from pettingllms.evaluation.run_folder import (
    EvaluationStopped,
    Progress,
    RunFolder,
    evaluate,
    evaluate_async,
)
from pettingllms.evaluation.statistics import (
    Interval,
    clustered_share,
    weighted_sum,
    wilson_interval,
)

__all__ = [
    "Blame",
    "BlameSettings",
    "Comparison",
    "EpisodeResult",
    "EvaluationPlan",
    "EvaluationStopped",
    "Interval",
    "Progress",
    "Report",
    "RoleResult",
    "RunFolder",
    "RunFolderError",
    "Seat",
    "VariantReport",
    "clustered_share",
    "compare",
    "distinct_levels",
    "evaluate",
    "evaluate_async",
    "judge",
    "level_seed",
    "summarise",
    "summarise_variant",
    "weighted_sum",
    "wilson_interval",
]
