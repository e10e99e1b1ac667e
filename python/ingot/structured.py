"""The format of an answer: what callers write, as the native code wants it."""

import json
from typing import Any

from . import _ingot

KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


def read_format(response_format: Any, structured: Any) -> _ingot.StructuredOutput:
    """What one of the two says; without them any text will do."""
    if response_format is not None and structured is not None:
        raise ValueError("response_format cannot be combined with structured: an answer has one format")
    if response_format is not None:
        return _read_response_format(response_format)
    if structured is not None:
        return _read_structured(structured)
    return _ingot.StructuredOutput()


def _schema(value: Any) -> str:
    """A schema as text: of a pydantic model, a dict, or a text already."""
    if hasattr(value, "model_json_schema"):
        value = value.model_json_schema()
    return value if isinstance(value, str) else json.dumps(value)


def _read_response_format(value: Any) -> _ingot.StructuredOutput:
    param = "response_format"
    if hasattr(value, "model_json_schema"):
        return _ingot.StructuredOutput("json", _schema(value), strict=True, param=param)
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return _ingot.StructuredOutput()
    if kind == "json_object":
        return _ingot.StructuredOutput("json_object", param=param)
    if kind == "json_schema" and "schema" in value.get("json_schema", {}):
        inner = value["json_schema"]
        return _ingot.StructuredOutput("json", _schema(inner["schema"]), strict=bool(inner.get("strict")), param=param)
    raise ValueError('response_format must be a pydantic model, {"type": "text"}, {"type": "json_object"} or '
                     '{"type": "json_schema", "json_schema": {"schema": ...}}')


def _read_structured(value: Any) -> _ingot.StructuredOutput:
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in KINDS:
        raise ValueError(f"structured must be a dict with one of {', '.join(KINDS)}")
    (kind, what), param = next(iter(value.items())), f"structured[{next(iter(value))!r}]"
    if kind == "json_object":
        return _ingot.StructuredOutput(kind if what else "none", param=param)
    if kind == "choice":
        return _ingot.StructuredOutput(kind, choices=list(what), param=param)
    text = _schema(what) if kind in ("json", "structural_tag") else what
    return _ingot.StructuredOutput(kind, text, param=param)
