# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema with which editors complete and check descriptors: ``schema.json``, made from the models.

``python -m torch_fl.chips.descriptor.schema`` writes it anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from torch_fl.chips.descriptor.models import Descriptor

FILE = Path(__file__).parent / "schema.json"


class _Generator(GenerateJsonSchema):
    """Leaves out what no descriptor may say: a key without a value."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def generate() -> dict[str, Any]:
    """Return the schema. A descriptor that extends another need not say what that one says."""
    schema = Descriptor.model_json_schema(schema_generator=_Generator)
    schema.pop("required")
    schema["anyOf"] = [{"required": ["runtime_so"]}, {"required": ["extends"]}]
    schema["title"] = "Torch-FL descriptor"
    _close(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _close(schema: Any) -> None:
    """Let mappings whose keys follow a pattern have no other keys."""
    if isinstance(schema, dict):
        if "patternProperties" in schema:
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            _close(part)
    elif isinstance(schema, list):
        for part in schema:
            _close(part)


def text() -> str:
    """Return the schema as it is committed."""
    return json.dumps(generate(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
