"""V: learns what prompts are worth, resumes exactly, and leaves the policy alone."""

import pytest
import torch

from pettingllms_trainers.backends.hf.critic import Critic
from pettingllms_trainers.config import ValueConfig
from pettingllms_trainers.errors import CheckpointError
from pettingllms_trainers.types import ValueExample

PROMPTS = [(a, b, c) for a in range(1, 5) for b in range(1, 5) for c in range(1, 5)]


def worth(prompt):
    return (prompt[0] * 1.0 - prompt[2]) / 4


EXAMPLES = [ValueExample(prompt, worth(prompt)) for prompt in PROMPTS]


def hidden_of(prompts):
    return torch.tensor([[*p, p[0] * p[1]] for p in prompts], dtype=torch.float32)


def critic(seed=0, **settings):
    config = ValueConfig(**{"hidden_size": 32, "learning_rate": 1e-2, "batch_size": 16, **settings})
    return Critic(config, hidden_of, hidden_size=4, device=torch.device("cpu"), seed=seed)


def test_v_is_nothing_before_and_the_target_after_learning():
    v = critic(num_epochs=20)
    assert v.values(PROMPTS) == [0.0] * len(PROMPTS)
    first = v.fit(EXAMPLES)
    assert first.r2 <= 0.0
    for _ in range(4):
        last = v.fit(EXAMPLES)
    assert last.r2 > 0.8
    assert v.values(PROMPTS) == pytest.approx([worth(p) for p in PROMPTS], abs=0.6)


def test_a_resumed_v_continues_exactly(tmp_path):
    settings = {"replay_steps": 2, "shrink": True}
    one, other = critic(**settings), critic(seed=1, **settings)
    one.fit(EXAMPLES[:40])
    torch.save(one.state_dict(), tmp_path / "v.pt")
    other_state = torch.load(tmp_path / "v.pt", weights_only=True)
    other.load_state_dict(other_state)
    other._seed = one._seed
    one.fit(EXAMPLES[40:])
    other.fit(EXAMPLES[40:])
    assert one.values(PROMPTS) == other.values(PROMPTS)


def test_a_v_of_another_shape_is_refused():
    with pytest.raises(CheckpointError, match="its V does not fit"):
        critic(hidden_size=16).load_state_dict(critic().state_dict())


def test_shrinking_draws_unreliable_predictions_to_their_mean():
    plain, shrunk = critic(), critic(shrink=True)
    for v in (plain, shrunk):
        v.fit(EXAMPLES)  # before it, V explained nothing: its reliability is 0
    assert len({round(v, 6) for v in shrunk.values(PROMPTS)}) == 1
    assert len({round(v, 6) for v in plain.values(PROMPTS)}) > 10


def test_clipping_slows_what_moves_too_far():
    far = [ValueExample(p, 10.0) for p in PROMPTS]
    free, clipped = critic(num_epochs=30), critic(num_epochs=30, clip=0.5)
    free.fit(far)
    clipped.fit(far)
    # Beyond the clip an example has no gradient towards its target any more.
    assert sum(clipped.values(PROMPTS)) < sum(free.values(PROMPTS))


def test_earlier_steps_are_learnt_from_as_long_as_they_are_kept():
    v = critic(replay_steps=1)
    v.fit(EXAMPLES[:10])
    v.fit(EXAMPLES[10:20])
    assert [len(step) for step in v.state_dict()["replay"]] == [10]
    assert v.fit([]).num_examples == 0
