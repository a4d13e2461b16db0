"""A request's body: bytes to a checked request model, or a sentence about what is wrong with it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic_core
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from hermitcrab.errors import RequestError

# deeper than any schema people write, and shallow enough for every recursive reader of the values
MAX_DEPTH = 64

_MODEL = TypeVar("_MODEL", bound="RequestModel")


# compared by identity: annotations must have a hash, and a schema has none
@dataclass(frozen=True, slots=True, eq=False)
class AlsoTakes:
    """Part of a field's annotation: a form beside its type that its validator reads, for the schema."""

    schema: Mapping[str, Any]

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [dict(self.schema), handler(core_schema)]}


class RequestModel(BaseModel):
    """Strict about the types of the fields it knows; others, which clients send freely, are passed over."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


def read_body(body: bytes, model: type[_MODEL]) -> _MODEL:
    """The request in `body`. Raises RequestError naming the field at fault.

    JSON as the standard has it: NaN, lone surrogates, numbers past any use and deep nesting are refused.
    """
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(f"The body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise RequestError("The body must be a JSON object.")
    _check_values(value)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _field_error(error) from None


def refuse_not_yet(request: RequestModel, not_yet: Mapping[str, tuple[object, ...]]) -> None:
    """Raises RequestError for a field that asks for something this server does not do yet.

    `not_yet` has such fields by name, each with the values that ask for nothing.
    """
    for field, harmless in not_yet.items():
        value = getattr(request, field)
        if value is not None and not any(type(value) is type(item) and value == item for item in harmless):
            raise RequestError(f"{field} is not supported by this server yet; leave it out.", param=field)


def _check_values(value: object) -> None:
    """Raises RequestError for nesting too deep, and for a number that only infinity could stand for."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
        ]
        if any(isinstance(child, float) and not math.isfinite(child) for child in inner):
            raise RequestError("The body has a number that is larger than any JSON reader takes.")
        level = [child for child in inner if isinstance(child, dict | list)]
        if not level:
            return
    raise RequestError(f"The body is nested deeper than {MAX_DEPTH} levels.")


def _field_error(error: ValidationError) -> RequestError:
    first: Any = error.errors(include_url=False)[0]
    field = ".".join(str(step) for step in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    return RequestError(f"{field}: {message[:1].lower()}{message[1:]}.", param=field)
