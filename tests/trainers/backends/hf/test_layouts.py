"""Packed tokens attend alike in chunks and at once, padded and by FlexAttention."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms_trainers.backends.hf import flex, layouts
from pettingllms_trainers.backends.hf.attention import UnsupportedModel
from pettingllms_trainers.backends.hf.flex import FlexLayout, uses_flex
from pettingllms_trainers.backends.hf.layouts import PackedLayout
from pettingllms_trainers.errors import ConfigError

PROMPTS, COMPLETIONS, OWNERS = [5, 3], [7, 20, 11], [0, 0, 1]
NUM_TOKENS = sum(PROMPTS) + sum(COMPLETIONS)


def attended(leaves, window):
    layout = PackedLayout(PROMPTS, COMPLETIONS, OWNERS, torch.device("cpu"))
    output = layout.attend(0, *leaves, window)
    return output, torch.autograd.grad(output.square().sum(), leaves)


@pytest.mark.parametrize("window", [None, 6])
@pytest.mark.parametrize("chunk", [1, 8, 19])
def test_chunks_of_queries_change_rounding_only(monkeypatch, chunk, window):
    generator = torch.Generator().manual_seed(3)
    leaves = [
        torch.randn(NUM_TOKENS, heads, 8, generator=generator, dtype=torch.float64)
        for heads in (4, 2, 2)
    ]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    monkeypatch.setattr(layouts, "_CHUNK", NUM_TOKENS)
    expected = attended(leaves, window)
    monkeypatch.setattr(layouts, "_CHUNK", chunk)
    torch.testing.assert_close(attended(leaves, window), expected)


CPU = torch.device("cpu")
H, J, D = 4, 2, 16

sizes = st.lists(
    st.tuples(st.integers(1, 200), st.lists(st.integers(1, 150), max_size=3)),
    min_size=1,
    max_size=4,
)


def lengths_of(groups):
    prompts = [prompt for prompt, _ in groups]
    completions = [length for _, own in groups for length in own]
    owners = [index for index, (_, own) in enumerate(groups) for _ in own]
    return prompts, completions, owners


def sees(mask, length):
    """``[L, L]``: what the mask says of every pair of tokens."""
    tokens = torch.arange(length)
    zero = torch.tensor(0)
    return mask.mask_mod(zero, zero, tokens[:, None], tokens[None])


def dense(query, key, value, mask):
    """FlexAttention with a gradient, which PyTorch has not on a CPU."""
    keys, values = (part.repeat_interleave(H // J, 1) for part in (key, value))
    seen = sees(mask, query.shape[2])
    return torch.nn.functional.scaled_dot_product_attention(query, keys, values, seen, scale=1.0)


def random_parts(num_tokens, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(num_tokens, heads, D, generator=generator, requires_grad=True)
        for heads in (H, J, J)
    ]


GROUPS = [(20, [5, 9]), (130, []), (3, [140, 1, 30])]


@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_pytorch_computes_what_the_padded_way_does(window):
    lengths = lengths_of(GROUPS)
    parts = random_parts(sum(lengths[0]) + sum(lengths[1]))
    with torch.no_grad():
        found = FlexLayout(*lengths, CPU).attend(0, *parts, window)
        expected = PackedLayout(*lengths, CPU).attend(0, *parts, window)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=15)
@given(groups=sizes, window=st.sampled_from([None, 1, 50]))
def test_output_and_gradient_are_those_of_the_padded_way(groups, window):
    lengths = lengths_of(groups)
    num_tokens = sum(lengths[0]) + sum(lengths[1])
    weights = torch.randn(num_tokens, H, D, generator=torch.Generator().manual_seed(1))
    results = []
    for kind in (FlexLayout, PackedLayout):
        parts = random_parts(num_tokens)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flex, "_attend", dense)
            output = kind(*lengths, CPU).attend(0, *parts, window)
        (output * weights).sum().backward()
        results.append((output.detach(), *(part.grad for part in parts)))
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=25)
@given(groups=sizes, window=st.sampled_from([None, 1, 200]))
def test_blocks_are_those_that_the_mask_shows(groups, window):
    """A block is left out only where nothing is seen, and full only where all is."""
    layout = FlexLayout(*lengths_of(groups), CPU)
    mask, length = layout.mask(window), layout._length
    # [S, S] by the mask of single tokens
    shown = sees(mask, length).unflatten(0, (-1, 128)).unflatten(2, (-1, 128)).transpose(1, 2)
    some, all_of_it = shown.flatten(2).any(-1).numpy(), shown.flatten(2).all(-1).numpy()

    def dense_of(counts, indices):
        found = np.zeros(some.shape, bool)
        for row, (count, order) in enumerate(zip(counts[0, 0], indices[0, 0], strict=True)):
            found[row, order[:count]] = True
        return found

    partial = dense_of(mask.kv_num_blocks, mask.kv_indices)
    filled = dense_of(mask.full_kv_num_blocks, mask.full_kv_indices)
    assert not (partial & filled).any()
    assert not (some & ~(partial | filled)).any()
    assert not (filled & ~all_of_it).any()
    # the way back sees the same pairs
    np.testing.assert_array_equal(dense_of(mask.q_num_blocks, mask.q_indices).T, partial)
    np.testing.assert_array_equal(dense_of(mask.full_q_num_blocks, mask.full_q_indices).T, filled)


def test_long_prompts_are_seen_in_whole_blocks():
    mask = FlexLayout([1024], [256, 256], [0, 0], CPU).mask(None)
    # of the prompt what lies below its diagonal, of the completions their prompt and the same
    assert mask.full_kv_num_blocks[0, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 9]
    assert mask.kv_num_blocks[0, 0].tolist() == [1] * 12


def test_new_masks_of_one_length_share_a_kernel():
    """A kernel is compiled for a length, not for a mask: closures hold tensors."""
    compiled = torch.compile(flex.flex_attention, backend="eager", dynamic=False, fullgraph=True)
    torch._dynamo.reset()
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        for groups in ([(20, [5, 9])], [(30, [5]), (3, [1, 1, 4])], [(60, [])]):
            lengths = lengths_of(groups)
            parts = random_parts(sum(lengths[0]) + sum(lengths[1]))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    flex, "_attend",
                    lambda q, k, v, mask: compiled(
                        q, k, v, block_mask=mask, scale=1.0, enable_gqa=True
                    ),
                )  # fmt: skip
                found = FlexLayout(*lengths, CPU).attend(0, *parts, None)
            expected = PackedLayout(*lengths, CPU).attend(0, *parts, None)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


class _Model:
    def __init__(self, kind, head_dim=64):
        self.device = torch.device(kind)
        self.config = self
        self.head_dim = head_dim

    def get_text_config(self):
        return self


def test_a_gpu_gets_it_and_a_cpu_does_not():
    assert uses_flex(_Model("cuda"), "auto")
    assert uses_flex(_Model("cuda"), "flex")
    assert not uses_flex(_Model("cuda"), "padded")
    assert not uses_flex(_Model("cuda", head_dim=8), "auto")
    assert not uses_flex(_Model("cpu"), "auto")


@pytest.mark.parametrize(("model", "reason"), [(_Model("cpu"), "'cpu'"), (_Model("cuda", 8), "8")])
def test_where_it_cannot_be_used_the_error_says_why(model, reason):
    with pytest.raises(ConfigError, match=f'packed_attention = "flex" needs.*{reason}'):
        uses_flex(model, "flex")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 50])
def test_the_kernel_of_the_gpu_has_the_output_and_gradient(dtype, window):
    lengths = lengths_of(GROUPS)
    num_tokens = sum(lengths[0]) + sum(lengths[1])
    results = []
    for kind, precision, device in ((FlexLayout, dtype, "cuda"), (PackedLayout, None, "cpu")):
        parts = [
            p.detach().to(device, precision).requires_grad_() for p in random_parts(num_tokens)
        ]
        output = kind(*lengths, torch.device(device)).attend(0, *parts, window)
        output.float().square().sum().backward()
        results.append([t.detach().float().cpu() for t in (output, *(p.grad for p in parts))])
    limit = 2e-2 if dtype == torch.float32 else 2e-1  # TF32 in the products
    for found, expected in zip(*results, strict=True):
        assert (found - expected).abs().max() < limit * expected.abs().max()


def test_a_kernel_that_cannot_be_compiled_is_an_unsupported_model(monkeypatch):
    class OnGPU:
        is_cuda, shape = True, (1, H, 128, D)

    def fail(*_, **__):
        raise torch._dynamo.exc.TorchDynamoException("no Triton\nmore")

    monkeypatch.setattr(flex, "_compiled", lambda: fail)
    with pytest.raises(UnsupportedModel, match=r"\(no Triton\); set optimizer.packed_attention"):
        flex._attend(OnGPU(), OnGPU(), OnGPU(), None)
