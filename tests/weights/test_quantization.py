"""The quantization table of config.json: defaults, overrides by module, and refusals that name the entry."""

import pytest

from hermitcrab.errors import CheckpointError
from hermitcrab.weights.affine import AffineFormat
from hermitcrab.weights.quantization import QuantizationTable, read_quantization

SIX_BITS = {"bits": 6, "group_size": 32, "mode": "affine"}


def table_of(quantization: object) -> QuantizationTable:
    return read_quantization({"quantization": quantization}, lambda path: path.removeprefix("model."))


def refusal(quantization: object) -> str:
    with pytest.raises(CheckpointError) as caught:
        table_of(quantization)
    return str(caught.value)


def test_without_a_table_no_module_is_quantized() -> None:
    assert read_quantization({}, str).format_of("a") is None


def test_a_module_without_an_entry_has_the_default() -> None:
    assert table_of(SIX_BITS).format_of("a") == AffineFormat(6, 32)


def test_a_module_with_an_entry_has_its_own_format() -> None:
    table = table_of(SIX_BITS | {"model.a": {"bits": 8, "group_size": 64}})
    assert (table.format_of("a"), table.format_of("b")) == (AffineFormat(8, 64), AffineFormat(6, 32))


def test_what_an_entry_leaves_out_is_the_defaults() -> None:
    assert table_of(SIX_BITS | {"model.a": {"bits": 8}}).format_of("a") == AffineFormat(8, 32)


def test_true_means_the_default_and_false_not_quantized() -> None:
    table = table_of(SIX_BITS | {"model.a": True, "model.b": False})
    assert (table.format_of("a"), table.format_of("b")) == (AffineFormat(6, 32), None)


def test_the_table_is_found_under_either_name() -> None:
    assert read_quantization({"quantization_config": SIX_BITS}, str).default == AffineFormat(6, 32)


def test_the_mode_may_be_left_out() -> None:
    assert table_of({"bits": 4, "group_size": 128}).default == AffineFormat(4, 128)


@pytest.mark.parametrize("bits", [3, 7, 16, "6", 6.0, True, None])
def test_bits_that_cannot_be_read_are_refused(bits: object) -> None:
    assert refusal(SIX_BITS | {"bits": bits}) == (
        f"config.json: quantization has bits {bits!r}, but it must be 4, 5, 6 or 8."
    )


@pytest.mark.parametrize("group_size", [16, 0, 256, None])
def test_groups_that_cannot_be_read_are_refused(group_size: object) -> None:
    assert refusal(SIX_BITS | {"group_size": group_size}) == (
        f"config.json: quantization has group_size {group_size!r}, but it must be 32, 64 or 128."
    )


def test_a_bad_override_is_refused_by_its_path() -> None:
    assert refusal(SIX_BITS | {"model.a": {"bits": 2}}) == (
        "config.json: quantization of model.a has bits 2, but it must be 4, 5, 6 or 8."
    )


def test_an_override_of_another_kind_is_refused() -> None:
    assert refusal(SIX_BITS | {"model.a": 4}) == (
        "config.json: quantization of model.a must be a JSON object, true or false, not 4."
    )


def test_another_mode_is_refused() -> None:
    assert refusal({"bits": 4, "group_size": 32, "mode": "mxfp4"}) == (
        "config.json: quantization has mode 'mxfp4', but this server reads only 'affine'."
    )


def test_another_method_is_refused_by_its_name() -> None:
    with pytest.raises(CheckpointError) as caught:
        read_quantization({"quantization_config": {"quant_method": "fp8"}}, str)
    assert str(caught.value) == (
        "config.json: quantization_config says quant_method 'fp8', "
        "but this server reads only MLX's affine quantization and plain weights."
    )


def test_a_table_that_is_no_object_is_refused() -> None:
    assert refusal([6]) == "config.json: quantization must be a JSON object, not [6]."
