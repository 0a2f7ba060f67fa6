"""`python -m pettingllms.cli`."""

from pettingllms.cli import main

main()
