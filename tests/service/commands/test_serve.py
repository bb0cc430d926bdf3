import argparse
import signal

import pytest
from pydantic import ValidationError

from service.commands import serve
from service.errors import SettingsError
from service.settings import Settings


@pytest.fixture
def parser():
    made = argparse.ArgumentParser(prog="san serve")
    serve.add_arguments(made)
    return made


def test_help_lists_every_setting_with_its_default_and_variable(parser):
    text = " ".join(parser.format_help().split())
    for name, field in Settings.model_fields.items():
        variable = f"SAN_{name.upper()}"
        assert field.description
        if name in ("api_keys", "metrics_keys", "admin_keys"):
            assert f"{variable} {field.description}" in text
            continue
        assert f"--{name.replace('_', '-')}" in text
        assert f"{variable})" in text
        if "by default" not in field.description:
            assert f"; {variable})" in text
    for shown in (
        "(default: none; SAN_GRPC_PORT)",
        "(default: 8000; SAN_PORT)",
        "(default: JPEG,PNG,WEBP; SAN_FORMATS)",
        "(default: off; SAN_BF16)",
        "(default: 0.99; SAN_PROMISE)",
        "the embedded one by default (SAN_BUNDLE)",
    ):
        assert shown in text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"port": "80000"}, "--port must be at most 65535, not '80000'."),
        ({"port": "abc"}, "--port must be a whole number, not 'abc'."),
        ({"engine": "tensorrt"}, "--engine must be one of auto, openvino, torch, not 'tensorrt'."),
        (
            {"cors_origins": "app.example.org"},
            "--cors-origins cannot be 'app.example.org': an origin is like "
            "https://app.example.org, without a path.",
        ),
        ({"promise": "much"}, "--promise must be a number, not 'much'."),
    ],
)
def test_a_wrong_value_is_told_in_words_of_ours(given, sentence):
    with pytest.raises(SettingsError) as told:
        serve.read_settings(given)
    assert str(told.value) == sentence


@pytest.mark.parametrize("origins", ["*", "https://a.org,http://localhost:3000", ""])
def test_origins_of_web_pages(origins):
    assert ",".join(serve.read_settings({"cors_origins": origins}).cors_origins) == origins


def test_formats_are_named_as_people_do():
    assert serve.read_settings({"formats": "jpeg, png"}).formats == ("JPEG", "PNG")


def test_keys_are_not_options(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["--api-keys", "secret"])
    assert "unrecognized" in capsys.readouterr().err


def test_options_go_before_the_environment(monkeypatch):
    monkeypatch.setenv("SAN_PORT", "1234")
    monkeypatch.setenv("SAN_API_KEYS", "a, b,")
    assert serve.read_settings({}).port == 1234
    assert serve.read_settings({"port": "99"}).port == 99
    assert [k.get_secret_value() for k in serve.read_settings({}).api_keys] == ["a", "b"]
    assert "a" not in repr(serve.read_settings({}).api_keys).replace("SecretStr", "")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"port": "70000"}, "--port"),
        ({"quantile": "2"}, "--quantile"),
        ({"device": "tpu"}, "--device"),
    ],
)
def test_a_wrong_option_is_one_sentence(given, expected):
    with pytest.raises(SettingsError, match=expected):
        serve.read_settings(given)


def test_a_wrong_variable_is_named(monkeypatch):
    monkeypatch.setenv("SAN_MAX_BATCH", "0")
    with pytest.raises(SettingsError, match="SAN_MAX_BATCH"):
        serve.read_settings({})


def test_a_missing_bundle_is_told_before_anything_starts(parser, tmp_path):
    from san_core.errors import BundleNotFoundError

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with pytest.raises(BundleNotFoundError):
            serve.run(parser.parse_args([str(tmp_path / "missing.safetensors")]))
        # By then SIGHUP, which asks for the bundle to be read again, ends nothing.
        assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_switch_can_be_turned_off(parser):
    args = parser.parse_args(["--no-access-log", "--bundle", "x"])
    assert args.access_log is False


def test_a_misspelt_variable_is_an_error_that_names_the_right_one(monkeypatch):
    monkeypatch.setenv("SAN_MAX_BACH", "4")
    with pytest.raises(SettingsError, match=r"SAN_MAX_BACH is not a setting. Did you mean SAN_MAX"):
        serve.read_settings({})


def test_a_misspelt_keyword_is_an_error():
    with pytest.raises(ValidationError, match="max_pixels"):
        Settings(max_pixels=1000)
