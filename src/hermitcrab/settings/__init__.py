"""Every setting: what it may be, what there is, and how it is read."""

from hermitcrab.settings.declarations import (
    ENVIRONMENT_PREFIX,
    Choice,
    Declaration,
    Names,
    RealNumber,
    Switch,
    Text,
    WholeNumber,
)
from hermitcrab.settings.groups import (
    ChatSettings,
    HttpSettings,
    LaneSettings,
    ModelSettings,
    ParitySettings,
    SessionSettings,
    Settings,
)
from hermitcrab.settings.reading import declarations, default_text, read_settings

__all__ = [
    "ENVIRONMENT_PREFIX",
    "ChatSettings",
    "Choice",
    "Declaration",
    "HttpSettings",
    "LaneSettings",
    "ModelSettings",
    "Names",
    "ParitySettings",
    "RealNumber",
    "SessionSettings",
    "Settings",
    "Switch",
    "Text",
    "WholeNumber",
    "declarations",
    "default_text",
    "read_settings",
]
