"""What do policies earn that read nothing? The search for cheap policies, in every environment.

    python benchmarks/suites/cheap_policies.py

Every built-in environment is searched with its default arguments and on each of its levels; see
`pettingllms.testing.cheap` for what is tried. Pay is the mean of an episode, on other levels than
those of the search: all of it (`return`), and what is paid for the agent's own actions (`own`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from measuring import frame, parser_of, write

import pettingllms
from pettingllms.testing.cheap import MEASURED_SEEDS, search_cheap_policies


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Id and arguments of every environment that is searched."""
    for env_id in pettingllms.registered_ids():
        spec = pettingllms.spec(env_id)
        if spec.package == "pettingllms":
            yield env_id, {}
            yield from ((env_id, {"difficulty": k}) for k in range(len(spec.load().difficulties)))


def main() -> None:
    options = parser_of("cheap_policies", __doc__).parse_args()
    result = frame("cheap_policies", MEASURED_SEEDS)
    result["environments"] = []
    for env_id, kwargs in cases():
        rows = [
            {
                "role": row.role,
                "pay": row.pay,
                "policy": dict(row.team),
                "cheap": round(row.cheap, 4),
                "oracle": round(row.oracle, 4),
                "share": round(row.share, 4),
                "success": round(row.success, 4),
            }
            for row in search_cheap_policies(env_id, **kwargs)
        ]
        result["environments"].append({"env": env_id, "arguments": kwargs, "roles": rows})
        print(env_id, kwargs, [(r["role"], r["pay"], r["share"]) for r in rows], flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
