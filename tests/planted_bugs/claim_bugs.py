"""Bugs by which a number or a sentence that is stated becomes untrue."""

from typing import Final

from tests.planted_bugs.bug import Bug

CLAIM_BUGS: Final = (
    Bug(
        "a rule of diagnosis waits for a reason that nobody sends",
        "ops/operate/diagnose/rules.py",
        'reason="deadline"',
        'reason="first_token"',
        ("tests/unit/repo/test_label_values.py",),
    ),
    Bug(
        "30 % kept free are 23 %",
        "ops/plan/sizes.py",
        "1.0 / (1.0 - headroom)",
        "1.0 + headroom",
        ("tests/unit/ops/plan/test_plan.py",),
    ),
    Bug(
        "a fifth of the calibration's texts is rare where three tenths are asked",
        "ops/texts/calibration_set.py",
        '_TAKEN_SHARES: Final[dict[Kind, float]] = {"rare": 0.3,',
        '_TAKEN_SHARES: Final[dict[Kind, float]] = {"rare": 0.2,',
        ("tests/unit/ops/texts/test_calibration_set.py",),
    ),
    Bug(
        "generated texts claim a customer's consent",
        "ops/texts/demo_texts.py",
        'yield CalibrationText(text=frame.format(**numbers), origin="own", group=frame)',
        "yield CalibrationText(text=frame.format(**numbers), consented=True, group=frame)",
        ("tests/unit/ops/texts/test_calibration_set.py",),
    ),
    Bug(
        "a test that wants a GPU runs where there is none",
        "tests/pytorch/conftest.py",
        '    collect_ignore_glob = ["test_torch_cuda.py"]\n',
        "    collect_ignore_glob = []\n",
        ("tests/unit/repo/test_not_run.py",),
    ),
    Bug(
        "a GPU's health is read by the engine's name",
        "workers/building.py",
        '    if info.device != "gpu":\n',
        '    if not info.name.startswith("tensorrt"):\n',
        ("tests/unit/shared/process/test_metrics_machine.py",),
    ),
    Bug(
        "the reserve is held against what was free before loading",
        "workers/engine/tensorrt/loading.py",
        "tell_reserve(memory, facts.device, device.free_bytes())",
        "tell_reserve(memory, facts.device, facts.free_bytes)",
        ("tests/unit/workers/engine/tensorrt/test_loading.py",),
    ),
    Bug(
        "an answer with a hedge counts as one without",
        "ops/evaluation/judging/result.py",
        "return one.verdict.right and not (one.question.answerable and _hedged(one))",
        "return one.verdict.right",
        ("tests/unit/ops/evaluation/test_report.py",),
    ),
    Bug(
        "a share above its bound meets the target",
        "tests/bench/stream.py",
        "    if ratio > 1:\n",
        "    if ratio > 100:\n",
        ("tests/unit/harness/bench/test_stream.py",),
    ),
    Bug(
        "a benchmark's answer of another length has not failed",
        "tests/bench/stream.py",
        "not outcome.by_model or outcome.output_tokens != new_tokens",
        "not outcome.by_model",
        ("tests/unit/harness/bench/test_stream.py",),
    ),
)
