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
from pettingllms.evaluation.blame import Blame, BlameSettings, JudgedAnswer, Seat, judge
from pettingllms.evaluation.episode import EpisodeResult, RoleResult
from pettingllms.evaluation.plan import (
    EpisodeSpec,
    EvaluationPlan,
    distinct_levels,
    level_seed,
    manifest_of,
)
from pettingllms.evaluation.report import (
    Comparison,
    Report,
    RoleReport,
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
    correlation_of,
    mean_interval,
    paired_share_difference,
    pass_at_k,
    sign_test,
    weighted_sum,
    wilson_interval,
)

__all__ = [
    "Blame",
    "BlameSettings",
    "Comparison",
    "EpisodeResult",
    "EpisodeSpec",
    "EvaluationPlan",
    "EvaluationStopped",
    "Interval",
    "JudgedAnswer",
    "Progress",
    "Report",
    "RoleReport",
    "RoleResult",
    "RunFolder",
    "RunFolderError",
    "Seat",
    "VariantReport",
    "clustered_share",
    "compare",
    "correlation_of",
    "distinct_levels",
    "evaluate",
    "evaluate_async",
    "judge",
    "level_seed",
    "manifest_of",
    "mean_interval",
    "paired_share_difference",
    "pass_at_k",
    "sign_test",
    "summarise",
    "summarise_variant",
    "weighted_sum",
    "wilson_interval",
]
