"""What a reply must be, in OpenAI's words (`response_format`) and in vLLM's (`structured_outputs`)."""

from typing import Annotated, Any, Literal

from pydantic import Field

from hermitcrab.errors import RequestError
from hermitcrab.server.text.grammar import Form, choice_form, json_form, regex_form
from hermitcrab.server.wire.body import RequestModel

MAX_CHOICES = 1024
MAX_CHARACTERS = 65536


class NamedSchema(RequestModel):
    """A JSON schema under a name; `strict` is the case anyway."""

    name: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class ResponseFormat(RequestModel):
    """`text`, any JSON object, or JSON that fits a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    @property
    def form(self) -> Form | None:
        """The form; None for text. Raises RequestError for a schema that is missing."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return json_form({"type": "object"}, "response_format")
        if self.json_schema is None or self.json_schema.schema_ is None:
            raise RequestError(
                "response_format.json_schema.schema is missing: json_schema needs it.",
                param="response_format",
            )
        return json_form(self.json_schema.schema_, "response_format")


class AnswerFormat(RequestModel):
    """The same as Responses and Messages have it, the schema beside its type; `strict` is the case anyway."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    strict: bool | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None

    def form(self, field: str) -> Form | None:
        """The form; None for text. Raises RequestError, naming `field`, for a schema that is missing."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return json_form({"type": "object"}, field)
        if self.schema_ is None:
            raise RequestError(f"{field}.schema is missing: json_schema needs it.", param=field)
        return json_form(self.schema_, field)


class StructuredOutputs(RequestModel):
    """One of: a JSON schema, a regular expression, a list of texts."""

    json_: Annotated[dict[str, Any] | None, Field(alias="json")] = None
    regex: Annotated[str | None, Field(min_length=1, max_length=MAX_CHARACTERS)] = None
    choice: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]] | None,
        Field(min_length=1, max_length=MAX_CHOICES),
    ] = None
    json_object: bool | None = None

    grammar: Any = None
    structural_tag: Any = None

    @property
    def form(self) -> Form | None:
        """The form; None where none is given. Raises RequestError for two, and for kinds not supported."""
        for field in ("grammar", "structural_tag"):
            if getattr(self, field) is not None:
                name = f"structured_outputs.{field}"
                raise RequestError(f"{name} is not supported by this server yet; leave it out.", param=name)
        forms: list[Form] = []
        if self.json_ is not None:
            forms.append(json_form(self.json_, "structured_outputs"))
        if self.json_object:
            forms.append(json_form({"type": "object"}, "structured_outputs"))
        if self.regex is not None:
            forms.append(regex_form(self.regex, "structured_outputs"))
        if self.choice is not None:
            forms.append(choice_form(self.choice, "structured_outputs"))
        if len(forms) > 1:
            raise RequestError("structured_outputs may have one kind only.", param="structured_outputs")
        return forms[0] if forms else None
