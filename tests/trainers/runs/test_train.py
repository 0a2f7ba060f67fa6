"""What train steps leave behind in memory, and what engines write with."""

import gc

from pettingllms_trainers import train
from pettingllms_trainers.backends.hf.engine import TransformersEngine
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.types import Decision, RolloutTree, TokenCompletion


def test_nothing_of_a_step_is_kept(small_run_file, tmp_path):
    left = []

    def count(step, metrics):
        gc.collect()
        kinds = [type(thing) for thing in gc.get_objects()]
        left.append(sum(map(kinds.count, (RolloutTree, Decision, TokenCompletion))))

    gc.freeze()  # what other tests have left is not counted
    try:
        where = str(tmp_path / "run")
        train(small_run_file(4), output_dir=where, on_step=count, evaluation={"every": 0})
    finally:
        gc.unfreeze()
    assert left[:3] == left[:1] * 3, "the examples of the first evaluation"


def test_engines_have_the_weights_before_the_first_evaluation(
    small_run_file, tmp_path, monkeypatch
):
    """Also without a warm start; servers would play with weights of their own."""
    done = []
    for kind, name in ((PolicyPool, "push_weights"), (TransformersEngine, "generate_now")):
        original = getattr(kind, name)

        def noted(*arguments, original=original, name=name):
            done.append(name)
            return original(*arguments)

        monkeypatch.setattr(kind, name, noted)
    train(small_run_file(1), output_dir=str(tmp_path / "run"), warm_start={"num_steps": 0})
    assert done[0] == "push_weights"
    assert done.count("push_weights") == 2
