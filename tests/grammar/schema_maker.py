"""Random schemas, and instances near what they accept."""

import json
import random

LETTERS = ["a", "b", "ab", "", "x1", "\u00e9", "zz top", "2024-02-29", "2023-02-29", "aaaa", "a\"b", "127.0.0.1", "c@d.ef"]
NUMBERS = [0, 1, -1, 2, 3, 7, 10, 12, 99, 100, 0.5, -0.5, 1.25, 2.75, -3.5, 10.01, 123456]
PATTERNS = ["^a+$", "b", "^[a-z]*$", "^(ab|x1)?$", "^.{1,3}$", "\\d", "^\\w+$", "^[^a]"]
FORMATS = ["date", "ipv4", "email", "uuid"]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def schema(self, depth):
        pick = self.random.choice
        kinds = ["string", "integer", "number", "enum", "boolean", "null"]
        if depth > 0:
            kinds += ["object", "object", "array", "array", "anyOf", "ref", "allOf"]
        kind = pick(kinds)
        maker = getattr(self, "_" + kind, None)
        return maker(depth) if maker else {"type": kind}

    def _string(self, _):
        out = {"type": "string"}
        if self.random.random() < 0.4:
            out["minLength"] = self.random.randrange(4)
        if self.random.random() < 0.4:
            out["maxLength"] = out.get("minLength", 0) + self.random.randrange(6)
        choice = self.random.random()
        if choice < 0.3 and len(out) == 1:
            out["pattern"] = self.random.choice(PATTERNS)
        elif choice < 0.4 and len(out) == 1:
            out["format"] = self.random.choice(FORMATS)
        return out

    def _number(self, _, kind="number"):
        out = {"type": kind}
        bounds = sorted(self.random.sample(NUMBERS, 2))
        if self.random.random() < 0.5:
            out[self.random.choice(["minimum", "exclusiveMinimum"])] = bounds[0]
        if self.random.random() < 0.5:
            out[self.random.choice(["maximum", "exclusiveMaximum"])] = bounds[1]
        if self.random.random() < 0.2:
            out["multipleOf"] = self.random.choice([2, 3, 5, 10])
        return out

    def _integer(self, depth):
        return self._number(depth, "integer")

    def _enum(self, _):
        return {"enum": self.random.sample(LETTERS + [None, True, 3, 17], self.random.randrange(1, 4))}

    def _array(self, depth):
        out = {"type": "array"}
        if self.random.random() < 0.8:
            out["items"] = self.schema(depth - 1)
        if self.random.random() < 0.3:
            out["prefixItems"] = [self.schema(depth - 1) for _ in range(self.random.randrange(1, 3))]
        if self.random.random() < 0.3:
            out["minItems"] = self.random.randrange(3)
        if self.random.random() < 0.3:
            out["maxItems"] = out.get("minItems", 0) + self.random.randrange(3)
        return out

    def _object(self, depth):
        names = self.random.sample(["a", "b", "name", "x y", "\u00e9"], self.random.randrange(4))
        out = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}}
        if names and self.random.random() < 0.6:
            out["required"] = self.random.sample(names, self.random.randrange(1, len(names) + 1))
        if self.random.random() < 0.6:
            out["additionalProperties"] = self.random.choice([False, True, self.schema(0)])
        return out

    def _anyOf(self, depth):
        return {"anyOf": [self.schema(depth - 1) for _ in range(self.random.randrange(2, 4))]}

    def _allOf(self, depth):
        return {"allOf": [self._object(depth - 1), self._object(depth - 1)]} if self.random.random() < 0.5 else self._object(depth)

    def _ref(self, _):
        return {"$ref": "#/$defs/shared"}

    def document(self):
        out = self.schema(3)
        if "$ref" not in json.dumps(out):
            return out
        shared = self.schema(2)
        if "$ref" in json.dumps(shared):
            shared = {"type": "array", "items": {"$ref": "#/$defs/shared"}}
        return {"anyOf": [out], "$defs": {"shared": shared}}

    def value(self, schema, root, depth=0):
        """Something near what the schema accepts, keys in its order."""
        if self.random.random() < 0.04 or depth > 6:
            return self.random.choice([None, True, 1, "a", [], {}])
        if "$ref" in schema:
            return self.value(root["$defs"]["shared"], root, depth + 1)
        for key in ("anyOf", "allOf"):
            if key in schema:
                return self.value(self.random.choice(schema[key]), root, depth + 1)
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        kind = schema.get("type")
        if kind == "string":
            return self.random.choice(LETTERS)
        if kind == "integer":
            return self.random.choice([n for n in NUMBERS if n == int(n)])
        if kind == "number":
            return self.random.choice(NUMBERS)
        if kind == "array":
            prefix, items = schema.get("prefixItems", []), schema.get("items", {"type": "null"})
            return [self.value(prefix[i] if i < len(prefix) else items, root, depth + 1) for i in range(self.random.randrange(4))]
        if kind == "object":
            kept = {k: self.value(v, root, depth + 1) for k, v in schema["properties"].items()
                    if k in schema.get("required", []) or self.random.random() < 0.6}
            if self.random.random() < 0.2:
                kept["more"] = self.random.choice(NUMBERS)
            return kept
        return self.random.choice([True, False]) if kind == "boolean" else None


class FormMaker(Maker):
    """Schemas as applications write them for a model: closed objects, texts and lists of a bounded length."""

    NAMES = ["name", "title", "city", "country", "status", "count", "price", "tags", "address", "email", "id", "active", "items", "kind", "note"]

    def _string(self, depth):
        out = super()._string(depth)
        if len(out) == 1 or "minLength" in out:
            out["maxLength"] = out.get("minLength", 0) + self.random.choice([8, 16, 32])
        return out

    def _array(self, depth):
        return {"type": "array", "items": self.schema(depth - 1), "maxItems": self.random.randrange(1, 4)}

    def _object(self, depth):
        names = self.random.sample(self.NAMES, self.random.randrange(1, 5))
        return {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}, "required": names, "additionalProperties": False}

    def _allOf(self, depth):
        return self._object(depth)

    def _ref(self, depth):
        return self._object(depth)

    def document(self):
        return self._object(2)
