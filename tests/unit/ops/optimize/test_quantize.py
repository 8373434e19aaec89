"""`replyline optimize quantize` of a tiny model: published whole with its report, or refused with nothing written."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

import msgspec
import onnx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from ops.cli import app
from ops.optimize.quantize import QuantizeOptions, quantize
from ops.optimize.report import REPORT, Report
from shared.errors import ModelError, SettingsError
from shared.model.folder import ModelFolder

MATRICES = 6


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """800 texts, short enough for a vocabulary of bytes."""
    lines = [
        *({"text": f"where is parcel number {n}"} for n in range(400)),
        *({"text": f"whar be me parcel {n}", "rare": True} for n in range(200)),
        *({"text": f"where is AX-{n:04}-B"} for n in range(200)),
    ]
    file = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    file.write_bytes(b"\n".join(msgspec.json.encode({**line, "consented": True}) for line in lines))
    return file


@pytest.fixture
def options(texts: Path, tiny_source: Path, tmp_path: Path) -> QuantizeOptions:
    return QuantizeOptions(
        calibration=str(texts),
        out=tmp_path / "made" / "tiny-int8-mlp",
        source=tiny_source,
        models=tmp_path / "models",
        bound=0.0,
        exclude="1:down,1:up:fp16",
        max_length=128,
        texts=500,
        held_out=20,
        seed=1,
        attention=False,
        compare=False,
        json_path=None,
    )


def test_a_model_is_published_with_its_report(options: QuantizeOptions) -> None:
    shown = StringIO()
    options = replace(options, compare=True, attention=True, json_path=options.models.parent / "report.json")
    assert quantize(options, Console(file=shown, width=200)) == 0
    folder = ModelFolder.open(options.out, verify=True)
    manifest = folder.manifest
    assert (manifest.precision, manifest.dialect, manifest.max_length) == ("int8-mlp", "tensorrt", 136)
    assert sorted(path.name for path in options.out.parent.iterdir()) == ["tiny-int8-mlp"]
    report = msgspec.json.decode(folder.read(REPORT), type=Report)
    assert options.json_path is not None
    assert msgspec.json.decode(options.json_path.read_bytes(), type=Report) == report
    assert report.excluded == "1:up:fp16,1:down"
    assert [(place.layer, place.place, dict(place.left)) for place in report.places] == [
        (0, "gate_up", {}),
        (0, "down", {}),
        (1, "gate_up", {"layers.1.mlp.up_proj": "fp16"}),
        (1, "down", {"layers.1.mlp.down_proj": "weights"}),
    ]
    assert list(report.scores) == ["all", "common", "rare", "sku"]
    for score in report.scores.values():
        assert 0.5 < score.answer_agreement <= 1
        assert abs(score.perplexity_growth) < 0.2
    assert report.scores_without_rare is not None
    assert report.weights_share < 1
    assert all(
        part in shown.getvalue() for part in ("MLP", "held-out texts", "calibrated on common texts alone", "sku")
    )


def test_the_mlp_may_be_of_floating_point_and_the_graph_for_older_versions(options: QuantizeOptions) -> None:
    shown = StringIO()
    options = replace(options, mlp="fp8", primitive=True)
    assert quantize(options, Console(file=shown, width=200)) == 0
    folder = ModelFolder.open(options.out, verify=True)
    assert (folder.manifest.precision, folder.manifest.dialect) == ("fp8-mlp", "tensorrt-primitive")
    report = msgspec.json.decode(folder.read(REPORT), type=Report)
    assert report.mlp == "fp8"
    assert 0.5 < report.scores["all"].answer_agreement <= 1
    assert "fp8" in shown.getvalue()
    assert "int8" not in shown.getvalue().replace(str(options.out), "")
    graph = onnx.load(folder.graph_path, load_external_data=False).graph
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer if tensor.name.endswith(".levels")}
    assert kinds == {
        f"layers.{name}_proj.levels": onnx.TensorProto.FLOAT8E4M3FN
        for name in ("0.mlp.gate", "0.mlp.up", "0.mlp.down", "1.mlp.gate", "1.mlp.down")
    }


def test_below_the_bound_nothing_is_written(options: QuantizeOptions, capsys: pytest.CaptureFixture[str]) -> None:
    options = replace(options, bound=1.0, exclude="none")
    assert quantize(options, Console(file=StringIO())) == 1
    assert not options.out.parent.exists()
    [line] = capsys.readouterr().err.splitlines()
    assert "is below --bound 1.0: nothing was published" in line
    assert "--exclude " in line


def test_what_is_searched_is_left_out(options: QuantizeOptions) -> None:
    shown = StringIO()
    assert quantize(replace(options, exclude="auto", bound=0.0), Console(file=shown, width=200)) == 0
    assert "of 4 places 4 with 8-bit weights alone, 0 in fp16: agreement" in shown.getvalue()
    assert "of 4 places 0 with 8-bit weights alone, 0 in fp16: agreement" in shown.getvalue()
    assert "not in 8 bits on both sides: none" in shown.getvalue()


def test_where_8_bit_weights_are_too_much_some_are_left_in_fp16(options: QuantizeOptions) -> None:
    shown = StringIO()
    options = replace(options, exclude="auto", bound=1.0)
    quantize(options, Console(file=shown, width=200))
    assert "of 4 places 0 with 8-bit weights alone, 4 in fp16: agreement" in shown.getvalue()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"calibration": "/nowhere.jsonl"}, SettingsError, "--calibration /nowhere.jsonl: No such file or directory"),
        ({"exclude": "7:down"}, SettingsError, "--exclude '7:down'"),
        ({"source": Path("/nowhere")}, ModelError, "/nowhere does not exist"),
        ({"max_length": 64}, SettingsError, "0 texts to calibrate with"),
        ({"max_length": 100_000}, SettingsError, "--max-length 100000: tiny has 256 positions"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_input_is_one_line_and_nothing_is_written(
    options: QuantizeOptions, change: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as refused:
        quantize(replace(options, **change), Console(file=StringIO()))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not options.out.exists()


def test_a_set_that_is_too_small_is_named_with_its_numbers(options: QuantizeOptions, tmp_path: Path) -> None:
    small = tmp_path / "small.jsonl"
    small.write_bytes(b'{"text": "where is it", "consented": true}\n')
    with pytest.raises(SettingsError, match=r"1 texts to calibrate with.*500 are needed"):
        quantize(replace(options, calibration=str(small)), Console(file=StringIO()))


def test_the_command_says_what_it_wants() -> None:
    result = CliRunner().invoke(app, ["optimize", "quantize", "--out", "x"])
    assert result.exit_code == 2
    assert "--calibration" in result.output
