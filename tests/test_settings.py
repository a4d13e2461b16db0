"""Settings: one declaration each, read from flags, environment, file and default in that order."""

import dataclasses
import os
from pathlib import Path

import pytest

from hermitcrab.cli.settings_page import settings_page
from hermitcrab.errors import SettingError
from hermitcrab.settings import (
    ChatSettings,
    Choice,
    RealNumber,
    Settings,
    Switch,
    WholeNumber,
    declarations,
    default_text,
    read_settings,
)

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


def read(
    flags: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    config: Path | None = None,
) -> Settings:
    return read_settings(Settings, flags or {}, environment=environment or {}, config=config)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "crab.toml"


def test_nothing_given_is_the_defaults() -> None:
    assert read() == Settings()


def test_the_defaults_bind_to_this_machine_only() -> None:
    assert (Settings().http.host, Settings().http.port, Settings().http.api_key) == ("127.0.0.1", 8080, None)


def test_a_flag_wins_over_the_environment_and_that_over_the_file_and_that_over_the_default(
    file: Path,
) -> None:
    file.write_text("port = 1\nthreads = 2\nslot-grow = 3\n")
    settings = read({"port": "11"}, {"HERMITCRAB_PORT": "21", "HERMITCRAB_THREADS": "22"}, file)
    assert (settings.http.port, settings.model.threads, settings.sessions.slot_grow_tokens) == (11, 22, 3)
    assert settings.http.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("HERMITCRAB_SLOT_CONTEXTS", "16384,4096x6", "16384,4096x6"),
        ("FLASHNEXT_SLOT_CONTEXTS", "16384,4096x6", "16384,4096x6"),
    ],
)
def test_sizes_are_read_under_their_own_name_and_the_alias(variable: str, text: str, value: str) -> None:
    assert read(environment={variable: text}).sessions.slot_contexts == value


def test_every_alias_of_the_first_implementation_is_read() -> None:
    environment = {"FLASHNEXT_SLOT_GROW": "1024", "FLASHNEXT_LOAD_LIMIT_GB": "2.5"}
    sessions = read(environment=environment).sessions
    assert (sessions.slot_grow_tokens, sessions.load_limit_gb) == (1024, 2.5)


def test_our_own_name_wins_over_the_alias() -> None:
    environment = {"FLASHNEXT_SLOT_GROW": "1", "HERMITCRAB_SLOT_GROW": "2"}
    assert read(environment=environment).sessions.slot_grow_tokens == 2


def test_a_variable_set_to_nothing_is_not_set() -> None:
    assert read(environment={"HERMITCRAB_PORT": "", "FLASHNEXT_SLOT_CONTEXTS": ""}) == Settings()


def test_an_empty_list_of_sizes_on_the_command_line_is_kept_for_its_reader_to_refuse() -> None:
    assert read({"slot-contexts": ""}).sessions.slot_contexts == ""


def test_the_environment_of_the_program_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMITCRAB_PORT", "4711")
    assert read_settings(Settings, {}).http.port == 4711
    assert os.environ["HERMITCRAB_PORT"] == "4711"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("port", "65536", "--port: '65536' is not allowed here; give a whole number from 0 to 65535"),
        ("port", "-1", "--port"),
        ("port", "+1", "--port"),
        ("port", "1e3", "--port"),
        ("port", "", "--port"),
        ("port", " 1", "--port"),
        ("port", "1_0", "--port"),
        ("port", "١", "--port"),
        ("port", "9" * 5000, "--port"),
        ("parallel", "0", "give 'auto' or a whole number from 1 to 1024"),
        ("parallel", "AUTO", "--parallel"),
        ("dtype", "float16", "give one of float32, bfloat16"),
        ("decode-share", "0.96", "give a number from 0 to 0.95"),
        ("decode-share", "nan", "--decode-share"),
        ("decode-share", "inf", "--decode-share"),
        ("load-limit-gb", "0", "--load-limit-gb"),
        ("alias", "a,,b", "names separated by commas"),
        ("name", "  ", "text that is not empty"),
        ("host", "", "--host"),
        ("model", "", "MODEL"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(name: str, text: str, says: str) -> None:
    with pytest.raises(SettingError) as raised:
        read({name: text})
    assert says in str(raised.value)


def test_a_wrong_value_is_named_by_where_it_came_from(file: Path) -> None:
    file.write_text('port = "no"')
    with pytest.raises(SettingError, match="FLASHNEXT_SLOT_GROW: 'x'"):
        read(environment={"FLASHNEXT_SLOT_GROW": "x"})
    with pytest.raises(SettingError, match=r"crab\.toml: port: 'no'"):
        read(config=file)


def test_a_secret_is_not_repeated_by_an_error_nor_by_a_repr() -> None:
    assert "hush" not in repr(read({"api-key": "hush"}))
    with pytest.raises(SettingError) as raised:
        read({"api-key": "  "})
    assert "the given text is not allowed here" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("parallel", "auto", None),
        ("parallel", "3", 3),
        ("decode-share", ".5", 0.5),
        ("alias", "a, b", ("a", "b")),
    ],
)
def test_a_right_value_is_read(name: str, text: str, value: object) -> None:
    settings = read({name: text})
    found = {
        "parallel": settings.sessions.parallel,
        "decode-share": settings.lanes.decode_share,
        "alias": settings.http.aliases,
    }
    assert found[name] == value


def test_a_file_may_use_tomls_own_types(file: Path) -> None:
    file.write_text('port = 81\ndecode-share = 0.5\nalias = ["a", "b"]\nparallel = "auto"\nmodel = "/m"\n')
    settings = read(config=file)
    assert (settings.http.port, settings.lanes.decode_share, settings.http.aliases) == (81, 0.5, ("a", "b"))
    assert settings.model.path == "/m"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("prot = 1", "there is no setting 'prot'; the nearest is 'port'"),
        ("slot_grow = 1", "the nearest is 'slot-grow'"),
        ("zzzzzz = 1", "there is no setting 'zzzzzz'; the nearest is "),
        ("port = [1]", "port: a list is not allowed here"),
        ("[port]\na = 1", "port: a dict is not allowed here"),
        ("port = true", "port: 'true' is not allowed here"),
        ("port = 2020-01-01", "port: a date is not allowed here"),
        ("port = 1.0", "port: '1.0' is not allowed here"),
        ("port = ", "not a TOML file"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(file: Path, content: str, says: str) -> None:
    file.write_text(content)
    with pytest.raises(SettingError) as raised:
        read(config=file)
    assert says in str(raised.value)


def test_a_file_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(SettingError, match=r"--config .*crab\.toml: cannot be read: No such file"):
        read(config=file)


def test_a_file_that_is_not_text_is_named(file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="not a TOML file"):
        read(config=file)


def test_a_misspelt_variable_is_an_error_that_names_the_right_one() -> None:
    with pytest.raises(
        SettingError, match="no HERMITCRAB_SLOT_CONTEXT; did you mean HERMITCRAB_SLOT_CONTEXTS"
    ):
        read(environment={"HERMITCRAB_SLOT_CONTEXT": "1"})


@pytest.mark.parametrize(
    "variable",
    ["HERMITCRAB_SERVICE_HOST", "HERMITCRAB_SERVICE_PORT", "HERMITCRAB_PORT_8080_TCP_ADDR", "SLOT_GRO"],
)
def test_variables_of_others_are_left_alone(variable: str) -> None:
    assert read(environment={variable: "x"}) == Settings()


def test_the_chat_clients_variables_are_no_slip_of_the_servers() -> None:
    assert read(environment={"HERMITCRAB_URL": "http://x", "HERMITCRAB_THINK": "false"}) == Settings()


def test_the_chat_client_reads_its_own_settings() -> None:
    chat = read_settings(ChatSettings, {"think": "false"}, environment={"HERMITCRAB_URL": "http://x"})
    assert (chat.url, chat.is_thinking) == ("http://x", False)


@pytest.mark.parametrize("group", [Settings, ChatSettings])
def test_every_default_is_itself_allowed(group: type) -> None:
    for declaration in declarations(group):
        text = default_text(group, declaration.name)
        if not declaration.default_text:
            assert declaration.read(text, "default") is not None


@pytest.mark.parametrize("group", [Settings, ChatSettings])
def test_every_setting_has_its_own_name_and_a_meaning(group: type) -> None:
    found = declarations(group)
    assert len({declaration.name for declaration in found}) == len(found)
    for declaration in found:
        assert declaration.help.endswith(".")
        assert declaration.kind.allowed


def test_settings_cannot_be_changed_once_read() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().log_level = "debug"  # type: ignore[misc]  # that it is refused is the point


@pytest.mark.parametrize("kind", [WholeNumber(1, 9), RealNumber(0, 1), Choice(("a",)), Switch()])
def test_a_word_is_never_taken_for_a_value(kind: WholeNumber | RealNumber | Choice | Switch) -> None:
    with pytest.raises(ValueError, match="word"):
        kind.parse("word")


def test_the_page_of_settings_is_the_one_that_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page()
