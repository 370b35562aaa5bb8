import pytest

from specgguf.models.names import ChoiceError, choose, choose_head, variants

# Names as they occur on the hub.
QWEN = ["README.md", "x-q4_k_m.gguf", "x-q8_0.gguf", "x-fp16.gguf"]
UPPER = ["X-Q4_K_M.gguf", "X-Q4_K_S.gguf", "X-IQ4_XS.gguf", "X-bf16.gguf", "imatrix.dat", "mmproj-X-f16.gguf"]
DOTS = ["X.Q4_K_M.gguf", "X.Q2_K.gguf"]
IMATRIX = ["X.i1-Q4_K_M.gguf", "X.i1-IQ2_XXS.gguf", "X.imatrix.gguf"]
PREFIXED = ["google_x-1b-it-Q4_K_M.gguf", "google_x-1b-it-Q8_0.gguf"]
DYNAMIC = ["X-UD-Q4_K_XL.gguf", "X-UD-Q4_K_M.gguf", "X-Q4_K_M.gguf"]
ONLY_DYNAMIC = ["X-UD-Q4_K_M.gguf"]
SPLIT = [f"X-00{number:03}-of-00003.gguf" for number in (1, 2, 3)]
SPLIT_QUANT = [f"x-q4_k_m-00{number:03}-of-00002.gguf" for number in (2, 1)]
FOLDER = [f"Q8_0/X-00{number:03}-of-00002.gguf" for number in (1, 2)] + ["Q4_K_M/X.gguf"]
BOTH = ["X-Q4_K_M.gguf", "X-Q4_K_M-00001-of-00002.gguf", "X-Q4_K_M-00002-of-00002.gguf"]
BROKEN = ["X-Q4_K_M-00001-of-00003.gguf", "X-Q4_K_M-00003-of-00003.gguf"]
NO_Q4 = ["X-Q5_K_M.gguf", "X-Q6_K.gguf"]
ONLY = ["X-Q6_K.gguf"]
NAMELESS = ["dflash-kquant.gguf", "mtp-x.gguf", "model.gguf"]
DRAFTERS = ["mtp-X-Q4_0.gguf", "X-DFlash2-Q4_K_M.gguf", "eagle3-X.gguf", "X-dspark-Q8_0.gguf", "X-Q4_0.gguf"]
CASES = ["gpt-oss-20b-MXFP4.gguf", "gpt-oss-20b-Q8_0.gguf"]
BESIDE = ["X-Q4_K_M.gguf", "X-Q8_0.gguf", "mtp-X-Q8_0.gguf", "mtp-X-Q4_0.gguf", "mtp-X-BF16.gguf"]
IN_A_FOLDER = ["X-Q4_K_M.gguf", "MTP/mtp-X-Q4_0.gguf"]
INSIDE = ["X-MTP-Q4_K_M.gguf", "X-MTP-Q8_0.gguf"]
MTP_AT_THE_END = ["Hy3-Q4_K_M-mtp.gguf"]
WITH_AND_WITHOUT = ["X-Q4_K_M.gguf", "X-MTP-Q4_K_M.gguf", "X-MTP-Q8_0.gguf"]
HEADS = ["x-dflash-Q4_K_M.gguf", "x-dflash-bf16.gguf", "x-dflash-Q6_K.gguf"]
UNNAMED_HEAD = ["gemma-4-26B-A4B-it-assistant.Q8_0.gguf"]
TWO_HEADS = ["X-Q4_K_M.gguf", "dflash-X-BF16.gguf", "mtp-X-BF16.gguf"]
TWO_MODELS = ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"]


@pytest.mark.parametrize(
    ("paths", "wanted", "chosen"),
    [
        (QWEN, "Q4_K_M", "x-q4_k_m.gguf"),
        (QWEN, "q8_0", "x-q8_0.gguf"),
        (QWEN, "FP16", "x-fp16.gguf"),
        (QWEN, None, "x-q4_k_m.gguf"),
        (UPPER, "q4_k_m", "X-Q4_K_M.gguf"),
        (UPPER, "iq4_xs", "X-IQ4_XS.gguf"),
        (UPPER, "BF16", "X-bf16.gguf"),
        (UPPER, "mmproj-X-f16.gguf", "mmproj-X-f16.gguf"),
        (DOTS, "Q2_K", "X.Q2_K.gguf"),
        (IMATRIX, "Q4_K_M", "X.i1-Q4_K_M.gguf"),
        (IMATRIX, "IQ2_XXS", "X.i1-IQ2_XXS.gguf"),
        (PREFIXED, None, "google_x-1b-it-Q4_K_M.gguf"),
        (DYNAMIC, "Q4_K_M", "X-Q4_K_M.gguf"),
        (DYNAMIC, "UD-Q4_K_M", "X-UD-Q4_K_M.gguf"),
        (DYNAMIC, "ud-q4_k_xl", "X-UD-Q4_K_XL.gguf"),
        (DYNAMIC, None, "X-Q4_K_M.gguf"),
        (ONLY_DYNAMIC, None, "X-UD-Q4_K_M.gguf"),
        (SPLIT, None, "X-00001-of-00003.gguf"),
        (SPLIT, "X-00002-of-00003.gguf", "X-00001-of-00003.gguf"),
        (SPLIT_QUANT, "Q4_K_M", "x-q4_k_m-00001-of-00002.gguf"),
        (FOLDER, "Q8_0", "Q8_0/X-00001-of-00002.gguf"),
        (FOLDER, None, "Q4_K_M/X.gguf"),
        (BOTH, "Q4_K_M", "X-Q4_K_M.gguf"),
        (BOTH, "X-Q4_K_M-00002-of-00002.gguf", "X-Q4_K_M-00001-of-00002.gguf"),
        (ONLY, None, "X-Q6_K.gguf"),
        (NAMELESS, None, "model.gguf"),
        (NAMELESS, "mtp-x.gguf", "mtp-x.gguf"),
        (DRAFTERS, None, "X-Q4_0.gguf"),
        (CASES, "mxfp4", "gpt-oss-20b-MXFP4.gguf"),
        (TWO_MODELS, "b-Q4_K_M.gguf", "b-Q4_K_M.gguf"),
        (BESIDE, "Q8_0", "X-Q8_0.gguf"),
        (IN_A_FOLDER, None, "X-Q4_K_M.gguf"),
        (INSIDE, None, "X-MTP-Q4_K_M.gguf"),
        (INSIDE, "Q8_0", "X-MTP-Q8_0.gguf"),
        (MTP_AT_THE_END, None, "Hy3-Q4_K_M-mtp.gguf"),
        (WITH_AND_WITHOUT, "Q4_K_M", "X-Q4_K_M.gguf"),
        (WITH_AND_WITHOUT, "X-MTP-Q4_K_M.gguf", "X-MTP-Q4_K_M.gguf"),
    ],
)
def test_what_is_meant(paths, wanted, chosen):
    assert choose(dict.fromkeys(paths, 1), wanted).parts[0] == chosen


@pytest.mark.parametrize(
    ("paths", "wanted", "chosen"),
    [
        (BESIDE, None, "mtp-X-Q8_0.gguf"),
        (BESIDE, "q4_0", "mtp-X-Q4_0.gguf"),
        (BESIDE, "Q4_K_M", "X-Q4_K_M.gguf"),  # no head is published so, and a model can draft too
        (BESIDE, "X-Q8_0.gguf", "X-Q8_0.gguf"),
        (IN_A_FOLDER, None, "MTP/mtp-X-Q4_0.gguf"),
        (HEADS, None, "x-dflash-Q4_K_M.gguf"),
        (HEADS, "BF16", "x-dflash-bf16.gguf"),
        (UNNAMED_HEAD, None, "gemma-4-26B-A4B-it-assistant.Q8_0.gguf"),
        (INSIDE, None, "X-MTP-Q4_K_M.gguf"),
        (TWO_HEADS, "mtp-X-BF16.gguf", "mtp-X-BF16.gguf"),
        ([*SPLIT, "mtp-X-Q8_0.gguf"], "X-00002-of-00003.gguf", "X-00001-of-00003.gguf"),
        (QWEN, None, "x-q4_k_m.gguf"),
    ],
)
def test_what_is_meant_by_a_draft(paths, wanted, chosen):
    assert choose_head(dict.fromkeys(paths, 1), wanted).parts[0] == chosen


@pytest.mark.parametrize(
    ("paths", "wanted", "named"),
    [
        (TWO_HEADS, "BF16", r"dflash-X-BF16.gguf \(1\.5 GB\), mtp-X-BF16.gguf"),
        (TWO_HEADS, None, "it has several models; choose from dflash-X-BF16.gguf"),
        (HEADS, "Q8_0", r"it has no Q8_0; choose from Q4_K_M \(1\.5 GB\), Q6_K"),
        (["README.md"], None, "no model"),
    ],
)
def test_which_head_is_not_clear(paths, wanted, named):
    with pytest.raises(ChoiceError, match=named):
        choose_head(dict.fromkeys(paths, 1_500_000_000), wanted)


@pytest.mark.parametrize(
    ("paths", "wanted", "named"),
    [
        (QWEN, "Q5_K_M", r"no Q5_K_M; choose from FP16 \(1\.5 GB\), Q4_K_M \(1\.5 GB\), Q8_0 \(1\.5 GB\)"),
        (ONLY_DYNAMIC, "Q4_K_M", "UD-Q4_K_M"),
        (UPPER, "Q4_K", "Q4_K_M"),
        (NO_Q4, None, r"Q5_K_M \(1\.5 GB\), Q6_K"),
        (TWO_MODELS, "Q4_K_M", r"a-Q4_K_M.gguf \(1\.5 GB\), b-Q4_K_M.gguf"),
        (BROKEN, "Q4_K_M", "missing parts: 2"),
        (QWEN, "y.gguf", "x-q4_k_m.gguf"),
        (["README.md"], None, "no model"),
        (["mmproj-x-f16.gguf"], None, "no model"),
        (["README.md"], "y.gguf", "no model"),
    ],
)
def test_what_is_not_clear_says_what_there_is(paths, wanted, named):
    with pytest.raises(ChoiceError, match=named):
        choose(dict.fromkeys(paths, 1_500_000_000), wanted)


def test_all_parts_in_order():
    assert choose(dict.fromkeys(SPLIT_QUANT, 1)).parts == tuple(sorted(SPLIT_QUANT))
    assert [len(variant.parts) for variant in variants(BOTH)] == [1, 2]
