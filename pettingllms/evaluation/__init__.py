"""Evaluation: play held-out levels with policies, keep every episode, report with intervals.

```python
team = {"tool": "oracle", "planner": "oracle"}
plan = EvaluationPlan(env_id="plan_path_v0", variants={"main": team})
folder = RunFolder.create("runs/oracle", plan)
evaluate(folder)
print(summarise(folder.plan, folder.results()).variants["main"].success)
```
"""

from pettingllms.evaluation.comparison import Comparison, compare
from pettingllms.evaluation.episode import EpisodeResult, RoleResult
from pettingllms.evaluation.levels import EpisodeSpec, distinct_levels, level_seed, manifest_of
from pettingllms.evaluation.plan import EvaluationPlan
from pettingllms.evaluation.report import (
    Report,
    RoleReport,
    VariantReport,
    summarise,
    summarise_variant,
)
from pettingllms.evaluation.run_folder import RunFolder, RunFolderError
from pettingllms.evaluation.runner import (
    EvaluationStopped,
    Progress,
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
    wilson_interval,
)

__all__ = [
    "Comparison",
    "EpisodeResult",
    "EpisodeSpec",
    "EvaluationPlan",
    "EvaluationStopped",
    "Interval",
    "Progress",
    "Report",
    "RoleReport",
    "RoleResult",
    "RunFolder",
    "RunFolderError",
    "VariantReport",
    "clustered_share",
    "compare",
    "correlation_of",
    "distinct_levels",
    "evaluate",
    "evaluate_async",
    "level_seed",
    "manifest_of",
    "mean_interval",
    "paired_share_difference",
    "pass_at_k",
    "sign_test",
    "summarise",
    "summarise_variant",
    "wilson_interval",
]
