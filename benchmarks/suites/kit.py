"""Which bad games does the conformance kit notice?

    python benchmarks/suites/kit.py

Each row of `tests/pettingllms/testing/mutants.toml` is an honest game with one text of its source
replaced. The result names the checks that notice it. Nothing is timed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings

from measuring import REPOSITORY, frame, parser_of, write

from pettingllms.testing import CheckStatus, examine_env


def main() -> None:
    """Examine every bad game, and write the JSON result."""
    options = parser_of("kit", __doc__).parse_args()
    sys.path.insert(0, str(REPOSITORY))
    from tests.pettingllms.testing.test_mutant_table import MUTANTS, game

    output, result = options.output.resolve(), frame("kit", [0])
    result["mutants"] = []
    warnings.simplefilter("ignore")
    # One of the mutants leaves files where it is played.
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for mutant in MUTANTS:
            kind, kwargs = game(mutant["of"], mutant["was"], mutant["now"])
            found = [f.check for f in examine_env(kind, **kwargs).of(CheckStatus.BROKEN)]
            result["mutants"].append({"of": mutant["of"], "kind": mutant["kind"], "noticed": found})
            print(mutant["kind"], found or "MISSED", flush=True)
        os.chdir(REPOSITORY)
    write(result, output)


if __name__ == "__main__":
    main()
