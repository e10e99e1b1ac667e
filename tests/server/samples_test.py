#!/usr/bin/env python3
"""Drawn at temperature 1 from the default model: whatever ends by itself is valid under jsonschema, and most answers do end.

    samples_test.py [--schemas 300] [--samples 5] [--tokens 256] [--cases FILE.jsonl]

Schemas are made by tests/grammar/schema_maker.py, or taken from FILE ({"schema": ...} a line). The suite takes a few;
INGOT_SOAK=1, or the options, more.
"""

import argparse
import concurrent.futures
import json
import pathlib
import sys

import jsonschema
import openai

import server as fixture

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "grammar"))


def made_schemas(count):
    import schema_maker
    for seed in range(count):
        yield schema_maker.FormMaker(seed).document()


def read_schemas(path, count):
    lines = pathlib.Path(path).read_text().splitlines()
    step = max(1, len(lines) // count)
    for line in lines[::step][:count]:
        yield json.loads(line)["schema"]


def is_valid(schema, text):
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind(schema, format_checker=kind.FORMAT_CHECKER).validate(json.loads(text))
        return True
    except (ValueError, jsonschema.ValidationError) as error:
        print(f"not valid: {text!r} under {json.dumps(schema)[:1000]}: {error}"[:2000], flush=True)
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=300 if fixture.SOAK else 16)
    parser.add_argument("--samples", type=int, default=5 if fixture.SOAK else 2)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--cases")
    parser.add_argument("--show", action="store_true", help="the end of answers that did not end")
    args = parser.parse_args()
    schemas = list(read_schemas(args.cases, args.schemas) if args.cases else made_schemas(args.schemas))
    declined, ended, cut, invalid, tokens = [], 0, 0, 0, 0

    with fixture.Server("--served-model-name", "test", "--max-model-len", 4096, model=fixture.default_model()) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=600)

        def ask(number):
            form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schemas[number]}}
            content = f"Answer with a short JSON value that fits this schema: {json.dumps(schemas[number])[:3000]}"
            return client.chat.completions.create(model="test", messages=[{"role": "user", "content": content}], n=args.samples, temperature=1,
                                                  seed=1000 * number, max_tokens=args.tokens, response_format=form)

        with concurrent.futures.ThreadPoolExecutor(args.clients) as pool:
            for number, future in [(number, pool.submit(ask, number)) for number in range(len(schemas))]:
                try:
                    answer = future.result()
                except openai.BadRequestError as error:
                    declined.append(error.message)
                    continue
                tokens += answer.usage.completion_tokens
                for choice in answer.choices:
                    if choice.finish_reason == "stop":
                        ended += 1
                        invalid += not is_valid(schemas[number], choice.message.content)
                    else:
                        cut += 1
                        if args.show:
                            print(f"cut: {choice.message.content[-300:]!r} under {json.dumps(schemas[number])[:300]}", flush=True)
    share = ended / max(1, ended + cut)
    print(f"{len(schemas)} schemas, {len(declined)} declined; {ended + cut} answers, {tokens} tokens: {share:.1%} ended within {args.tokens} tokens, "
          f"{invalid} of these not valid")
    for message in sorted(set(declined))[:20]:
        print("declined:", message[:300])
    passed = ended > 0 and invalid == 0 and share >= 0.8 and len(declined) <= len(schemas) // 10
    fixture.write_cases([("samples", None if passed else "failure")])
    sys.exit(not passed)


if __name__ == "__main__":
    main()
