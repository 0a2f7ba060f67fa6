"""Which bad games does the conformance kit notice, and which good ones does it let pass?

    python benchmarks/suites/kit.py

Each row of `tests/pettingllms/testing/mutants.toml` is an honest game that was changed. A bad game
is given to the check that is for its fault, and to all checks where the table names none; a good
one to all. The result names the checks that notice something. Nothing is timed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings

from measuring import REPOSITORY, frame, parser_of, write

from pettingllms.testing import CHECKS


def main() -> None:
    """Examine every changed game, and write the JSON result."""
    options = parser_of("kit", __doc__).parse_args()
    sys.path.insert(0, str(REPOSITORY))
    from tests.pettingllms.testing.test_mutants import TABLE, bad_games, broken

    output, result = options.output.resolve(), frame("kit", [0])
    warnings.simplefilter("ignore")
    # One of the mutants leaves files where it is played.
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, rows in (("mutants", bad_games()), ("good", TABLE["good"])):
            result[name] = []
            for row in rows:
                checks = [c for c in CHECKS if c.__name__ == f"check_{row.get('check')}"]
                found = [*broken(row, checks or CHECKS)]
                result[name].append({"of": row["of"], "kind": row["kind"], "noticed": found})
                print(row["of"], row["kind"], found or "nothing", flush=True)
        os.chdir(REPOSITORY)
    write(result, output)


if __name__ == "__main__":
    main()
