"""Settings: where they come from, what is refused, and what a message tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from agl_streams.config import (
    child_environment,
    default_data_dir,
    load_settings,
    mask_url,
    misspelt_variables,
)
from agl_streams.errors import ConfigError


def test_everything_has_a_default() -> None:
    """With an empty environment the settings describe one machine with the embedded engine."""
    settings = load_settings()
    assert settings.redis_url is None
    assert (settings.namespace, settings.shards) == ("default", 1)
    assert (settings.server_port, settings.proxy_port) == (4747, 4750)
    assert settings.capture == "required"


def test_a_variable_sets_a_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field is read from the variable of its name in capitals, with the prefix."""
    monkeypatch.setenv("AGL_LEASE_SECONDS", "2.5")
    monkeypatch.setenv("AGL_LOG_LEVEL", "debug")
    settings = load_settings()
    assert settings.lease_seconds == 2.5
    assert settings.log_level == "DEBUG"


def test_a_flag_wins_over_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """An override beats the environment, and an override of None leaves the environment's value."""
    monkeypatch.setenv("AGL_NAMESPACE", "from-env")
    assert load_settings(namespace="from-flag").namespace == "from-flag"
    assert load_settings(namespace=None).namespace == "from-env"


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable set to nothing, as compose files do, leaves the default."""
    monkeypatch.setenv("AGL_REDIS_URL", "")
    monkeypatch.setenv("AGL_SHARDS", "")
    assert load_settings().redis_url is None
    assert load_settings().shards == 1


def test_settings_are_frozen() -> None:
    """Settings cannot be changed once made."""
    settings = load_settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.namespace = "other"


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("AGL_SHARDS", "0", "greater than or equal to 1"),
        ("AGL_SHARDS", "many", "valid integer"),
        ("AGL_LEASE_SECONDS", "0", "greater than 0"),
        ("AGL_LEASE_SECONDS", "nan", "less than or equal to"),
        ("AGL_LEASE_SECONDS", "inf", "less than or equal to"),
        ("AGL_MAX_DELIVERIES", "-1", "greater than or equal to 1"),
        ("AGL_MIN_REPLICAS", "-1", "greater than or equal to 0"),
        ("AGL_PROXY_PORT", "65536", "less than or equal to 65535"),
        ("AGL_MAX_SPAN_BYTES", "0", "greater than 0"),
        ("AGL_CAPTURE", "maybe", "'required' or 'best_effort'"),
        ("AGL_LOG_LEVEL", "TRACE", "'DEBUG', 'INFO'"),
        ("AGL_LOG_FORMAT", "xml", "'console' or 'json'"),
        ("AGL_NAMESPACE", "a b", "1 to 128 characters"),
        ("AGL_NAMESPACE", "search", "reserved"),
        ("AGL_NAMESPACE", "x" * 129, "1 to 128 characters"),
        ("AGL_REDIS_URL", "http://localhost", "the scheme must be one of redis://"),
        ("AGL_REDIS_URL", "redis://", "host is missing"),
        ("AGL_REDIS_URL", "unix://", "path of the socket"),
        ("AGL_REDIS_URL", "redis://localhost:port", "not a URL"),
        ("AGL_UPSTREAM", "localhost:8000", "http:// or https://"),
        ("AGL_DATA_DIR", "~no-such-user-here/data", "home directory"),
    ],
)
def test_a_bad_value_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str) -> None:
    """A bad value raises a ConfigError that names variable and value and tells what is allowed."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert f"{variable}={value!r}" in str(caught.value)
    assert told in str(caught.value)


def test_every_bad_value_is_told_at_once() -> None:
    """Two bad values are both in the message, each under the name it was given by."""
    with pytest.raises(ConfigError, match=r"shards='0'.*lease_seconds='-1'"):
        load_settings(shards=0, lease_seconds=-1)


def test_an_unknown_setting_is_refused() -> None:
    """An override that is no field is an error, not ignored."""
    with pytest.raises(ConfigError, match="lease: there is no such setting"):
        load_settings(lease=3)


@pytest.mark.parametrize("field", ["max_input_bytes", "max_span_bytes"])
def test_a_limit_above_the_request_limit_is_refused(field: str) -> None:
    """A size that no request could carry is told with both variables."""
    with pytest.raises(ConfigError, match=rf"AGL_{field.upper()}=2000 is above AGL_MAX_REQUEST_BYTES=1000"):
        load_settings(**{"max_input_bytes": 500, "max_span_bytes": 500, "max_request_bytes": 1000, field: 2000})


def test_a_password_is_never_shown() -> None:
    """Neither a message nor the settings' repr shows the password of a URL."""
    with pytest.raises(ConfigError) as caught:
        load_settings(redis_url="http://user:secret@host")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(load_settings(redis_url="redis://user:secret@host"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:se:c@ret@host:1/0", "redis://user:***@host:1/0"),
        ("redis://:secret@host", "redis://:***@host"),
        ("unix:///run/valkey.sock?password=secret&db=1", "unix:///run/valkey.sock?password=***&db=1"),
        ("redis://host:6379/0", "redis://host:6379/0"),
    ],
)
def test_masking_keeps_the_rest_of_a_url(url: str, shown: str) -> None:
    """Only the password is replaced."""
    assert mask_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost:6379/0",
        "rediss://user:pw@cache.example:6380",
        "unix:///run/valkey/valkey.sock",
        "redis+cluster://a:1",
        "redis+sentinel://a:26379/main",
    ],
)
def test_every_form_of_server_url_is_accepted(url: str) -> None:
    """Plain, TLS, socket, cluster and sentinel URLs are taken as they are."""
    assert load_settings(redis_url=url).redis_url == url


def test_the_data_directory_follows_the_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On Linux the default lies in XDG_DATA_HOME, or in the usual place when that is unset or not absolute."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert default_data_dir() == tmp_path / "xdg" / "agl-streams"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_data_dir() == tmp_path / ".local" / "share" / "agl-streams"
    monkeypatch.setattr("sys.platform", "darwin")
    assert default_data_dir() == tmp_path / "Library" / "Application Support" / "agl-streams"


def test_a_data_directory_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative directory is one of the current folder, and a tilde is the home folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert load_settings(data_dir="data").data_dir == tmp_path / "data"
    assert load_settings(data_dir="~/data").data_dir == tmp_path / "home" / "data"


def test_a_misspelt_variable_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that resembles one of ours is told with the one meant, a foreign one is left alone."""
    monkeypatch.setenv("AGL_LEASE_SECOND", "3")
    monkeypatch.setenv("AGL_MANAGED_STORE", "1")
    monkeypatch.setenv("AGL_SOMETHING_ELSE_ENTIRELY", "1")
    assert misspelt_variables() == {"AGL_LEASE_SECOND": "AGL_LEASE_SECONDS"}


def test_a_child_process_loads_equal_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The environment made for a child yields the same settings there, whatever this process's variables say."""
    monkeypatch.setenv("AGL_NAMESPACE", "parent")
    monkeypatch.setenv("AGL_CAPTURE", "best_effort")
    monkeypatch.setenv("UNRELATED", "kept")
    settings = load_settings(
        redis_url="unix:///run/x.sock", namespace="child", lease_seconds=0.3, data_dir=tmp_path
    ).model_copy(update={"capture": "required"})
    environment = child_environment(settings)
    monkeypatch.undo()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert load_settings() == settings
    assert environment["UNRELATED"] == "kept"
