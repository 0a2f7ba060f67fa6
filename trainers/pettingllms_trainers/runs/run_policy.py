"""Policies `run:RUN?policy=NAME&step=N` of `pettingllms eval`: what a checkpoint of a run holds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from pettingllms import policies as core
from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf import local_policy
from pettingllms_trainers.errors import TrainerError
from pettingllms_trainers.runs.export import export_policies


def load(argument: str, settings: core.PolicySettings) -> local_policy.LocalPolicy:
    """Load a policy of a run's checkpoint into this process.

    Args:
        argument: ``RUN?policy=NAME&step=N``: output directory of a run, the policy (needed when
            the run trains several) and the train step (else the newest checkpoint); further
            options are those of ``hf:PATH``.
        settings: Whether the run is trusted; there is no server.

    Raises:
        InvalidArgument: An option is unknown or has a value that is not allowed.
        PolicyUnavailable: There is no such run, checkpoint or policy, or it cannot be loaded.
    """
    run, _, query = argument.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    policy, step = options.pop("policy", None), options.pop("step", None)
    if step is not None and not step.isdecimal():
        raise InvalidArgument("run option step", step, "a train step with a checkpoint")
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / (policy or "policy")
        try:
            written, _ = export_policies(
                Path(run),
                directory,
                policy=policy,
                step=None if step is None else int(step),
                trust=settings.trust,
            )
        except TrainerError as error:
            raise core.PolicyUnavailable(f"run:{argument} cannot be loaded: {error}") from error
        if len(written) > 1:
            raise core.PolicyUnavailable(
                f"run:{run} trains several policies; name one: run:{run}?policy={min(written)} "
                f"({', '.join(written)})"
            )
        rest = f"?{urlencode(options)}" if options else ""
        return local_policy.load(f"{directory}{rest}", settings)
