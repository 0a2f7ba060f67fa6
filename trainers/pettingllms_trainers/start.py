"""`pettingllms-train`, which loads for seconds."""

from pettingllms.cli import load


def main() -> int:
    """Run the command line; see `pettingllms_trainers.cli.main`."""
    return load("pettingllms_trainers.cli", "pettingllms-train").main()
