"""Problems from files and public data sets: reading, validation, reports, near-duplicates.

```python
problems = load_problems(CodeProblem, "train.jsonl").problems   # or "deepmind/code_contests"
print(check("train.jsonl"))                                # rows kept, rows skipped and why
print(check_overlap("train.jsonl", "test.jsonl"))          # near-duplicates between two sets
```
"""

from pettingllms_envs.datasets.loading import Loaded, load_problems
from pettingllms_envs.datasets.records import CodeProblem, CodeTest, MathProblem
from pettingllms_envs.datasets.reports import (
    DataReport,
    Duplicate,
    OverlapReport,
    check,
    check_overlap,
    near_duplicates,
)
from pettingllms_envs.datasets.rows import SCHEMAS, RowError, Schema, detect_schema

__all__ = [
    "SCHEMAS",
    "CodeProblem",
    "CodeTest",
    "DataReport",
    "Duplicate",
    "Loaded",
    "MathProblem",
    "OverlapReport",
    "RowError",
    "Schema",
    "check",
    "check_overlap",
    "detect_schema",
    "load_problems",
    "near_duplicates",
]
