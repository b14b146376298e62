"""The part of JSON Schema 2020-12 that the corpus' schemas use; a keyword that is not known here is an error."""

from typing import Any

Json = dict[str, Any]

KNOWN = {
    "$schema", "$ref", "$defs", "title", "description", "type", "properties", "required", "additionalProperties",
    "items", "minItems", "maxItems", "minimum", "maximum", "enum", "const", "anyOf",
}  # fmt: skip
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def wrong(value: Any, schema: Json, root: Json, at: str = "$") -> str | None:
    """Where and why a value does not fit; ``None`` where it does."""
    assert set(schema) <= KNOWN, f"unknown keywords {set(schema) - KNOWN}"
    if "$ref" in schema:
        reason = wrong(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, at)
        if reason:
            return reason
    if "type" in schema:
        fits = isinstance(value, TYPES[schema["type"]]) and (schema["type"] == "boolean") == isinstance(value, bool)
        if not fits:
            return f"{at} is no {schema['type']}"
    if "anyOf" in schema and all(wrong(value, one, root, at) for one in schema["anyOf"]):
        return f"{at} is none of its kinds"
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return f"{at} is {value!r}"
    if isinstance(value, dict):
        return wrong_object(value, schema, root, at)
    if isinstance(value, list):
        return wrong_array(value, schema, root, at)
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{at} is {value}"
    return None


def wrong_object(value: Json, schema: Json, root: Json, at: str) -> str | None:
    properties = schema.get("properties", {})
    missing, stray = set(schema.get("required", [])) - set(value), set(value) - set(properties)
    if missing or (stray and schema.get("additionalProperties") is False):
        return f"{at} lacks {sorted(missing)} and has {sorted(stray)}"
    reasons = (wrong(value[key], properties[key], root, f"{at}.{key}") for key in value if key in properties)
    return next((reason for reason in reasons if reason), None)


def wrong_array(value: list[Any], schema: Json, root: Json, at: str) -> str | None:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return f"{at} has {len(value)} items"
    reasons = (wrong(item, schema.get("items", {}), root, f"{at}[{n}]") for n, item in enumerate(value))
    return next((reason for reason in reasons if reason), None)
