"""Drives the official Python SDKs for the tests of the gateway.

One call per line of standard input, one result per line of standard output; ../README.md has the protocol. Calls run
side by side in threads. A call that outlives its timeout is reported as such and left behind: it ends with the process.
"""

import functools
import json
import os
import sys
import threading
import time

import anthropic
import openai
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types
from mistralai.client import Mistral
from mistralai.client import errors as mistral_errors
from mistralai.client.utils import BackoffStrategy, RetryConfig

NAME = "weather"
ABOUT = "The weather in a city."
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


# Clients are made once for each gateway and key, as a program would: making one reads all root certificates.
@functools.cache
def openai_client(base_url, key):
    return openai.OpenAI(base_url=base_url, api_key=key)


@functools.cache
def anthropic_client(base_url, key):
    return anthropic.Anthropic(base_url=base_url, api_key=key)


@functools.cache
def genai_client(base_url, key, retries):
    options = {"base_url": base_url}
    if retries:
        options["retry_options"] = genai_types.HttpRetryOptions(attempts=3, initial_delay=0.05, max_delay=0.1, jitter=0)
    return genai.Client(api_key=key, http_options=genai_types.HttpOptions(**options))


@functools.cache
def mistral_client(base_url, key, retries):
    options = {}
    if retries:
        options["retry_config"] = RetryConfig("backoff", BackoffStrategy(50, 100, 1.5, 400), False)
    return Mistral(api_key=key, server_url=base_url, **options)


class Cut(Exception):
    """A stream that ended without the end that its dialect promises, and without an error of the SDK's own."""


def arguments(text):
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return text


# --- openai ---------------------------------------------------------------------------------------------------------


def call_openai(c, r):
    client = openai_client(c["base_url"], c["key"]).with_options(default_headers=c["headers"])
    op = c["op"]
    if op in ("plain", "tools"):
        answer = client.chat.completions.create(**chat(c, "max_completion_tokens"))
        chat_result(r, answer.choices[0].message, answer.usage)
    elif op in ("stream", "stream_no_usage", "tools_stream"):
        p = chat(c, "max_completion_tokens")
        if op != "stream_no_usage":
            p["stream_options"] = {"include_usage": True}
        chat_stream(r, client.chat.completions.create(stream=True, **p))
    elif op == "embed":
        answer = client.embeddings.create(model=c["model"], input=[c["text"], "another text"])
        r["vectors"] = len(answer.data)
        r["usage"] = {"input": answer.usage.prompt_tokens, "output": 0}
    elif op in ("responses", "responses_tools"):
        response_result(r, client.responses.create(**response(c)))
    elif op == "responses_stream":
        text = ""
        for event in client.responses.create(stream=True, **response(c)):
            if event.type == "response.output_text.delta":
                text += event.delta
            elif event.type in ("response.completed", "response.incomplete"):
                response_result(r, event.response)
        r["text"] = text
        if "usage" not in r:
            raise Cut("the stream ended without response.completed")
    else:
        raise ValueError(f"the openai driver has no operation {op}")


def chat(c, cap):
    p = {"model": c["model"], "messages": [{"role": "user", "content": c["text"]}]}
    if c.get("max_tokens"):
        p[cap] = c["max_tokens"]
    if c["op"].startswith("tools"):
        p["tools"] = [{"type": "function", "function": {"name": NAME, "description": ABOUT, "parameters": SCHEMA}}]
    return p


def chat_result(r, message, usage):
    r["text"] = message.content or ""
    for t in message.tool_calls or []:
        r["tool"] = {"name": t.function.name, "arguments": arguments(t.function.arguments)}
    if usage:
        r["usage"] = {"input": usage.prompt_tokens, "output": usage.completion_tokens}


def chat_stream(r, chunks):
    name, args, finished = "", "", False
    for chunk in chunks:
        if chunk.usage:
            r["usage"] = {"input": chunk.usage.prompt_tokens, "output": chunk.usage.completion_tokens}
        for choice in chunk.choices:
            r["text"] += choice.delta.content or ""
            for t in choice.delta.tool_calls or []:
                name += t.function.name or ""
                args += t.function.arguments or ""
            finished = finished or bool(choice.finish_reason)
    if name:
        r["tool"] = {"name": name, "arguments": arguments(args)}
    if not finished:
        raise Cut("the stream ended without finish_reason")


def response(c):
    p = {"model": c["model"], "input": c["text"]}
    if c.get("max_tokens"):
        p["max_output_tokens"] = c["max_tokens"]
    if c["op"] == "responses_tools":
        p["tools"] = [{"type": "function", "name": NAME, "description": ABOUT, "parameters": SCHEMA}]
    return p


def response_result(r, answer):
    r["text"] = answer.output_text
    for item in answer.output:
        if item.type == "function_call":
            r["tool"] = {"name": item.name, "arguments": arguments(item.arguments)}
    r["usage"] = {"input": answer.usage.input_tokens, "output": answer.usage.output_tokens}


# --- anthropic ------------------------------------------------------------------------------------------------------


def call_anthropic(c, r):
    client = anthropic_client(c["base_url"], c["key"]).with_options(default_headers=c["headers"])
    messages = [{"role": "user", "content": c["text"]}]
    op = c["op"]
    p = {"model": c["model"], "messages": messages, "max_tokens": c.get("max_tokens") or 1}
    if op.startswith("tools"):
        p["tools"] = [{"name": NAME, "description": ABOUT, "input_schema": SCHEMA}]
    if op in ("plain", "tools"):
        message_result(r, client.messages.create(**p))
    elif op in ("stream", "tools_stream"):
        stopped = False
        with client.messages.stream(**p) as stream:
            for event in stream:
                if event.type == "text":
                    r["text"] += event.text
                stopped = stopped or event.type == "message_stop"
            if not stopped:
                raise Cut("the stream ended without message_stop")
            message_result(r, stream.get_final_message())
    elif op == "count":
        answer = client.messages.count_tokens(model=c["model"], messages=messages)
        r["usage"] = {"input": answer.input_tokens, "output": 0}
    else:
        raise ValueError(f"the anthropic driver has no operation {op}")


def message_result(r, message):
    r["text"] = ""
    for block in message.content:
        if block.type == "text":
            r["text"] += block.text
        elif block.type == "tool_use":
            r["tool"] = {"name": block.name, "arguments": block.input}
    r["usage"] = {"input": message.usage.input_tokens, "output": message.usage.output_tokens}


# --- google-genai ---------------------------------------------------------------------------------------------------


def call_genai(c, r):
    client = genai_client(c["base_url"], c["key"], bool(c.get("retries")))
    headers = genai_types.HttpOptions(headers=c["headers"])
    config = genai_types.GenerateContentConfig(max_output_tokens=c.get("max_tokens") or None, http_options=headers)
    op = c["op"]
    if op.startswith("tools"):
        tool = genai_types.FunctionDeclaration(name=NAME, description=ABOUT, parameters_json_schema=SCHEMA)
        config.tools = [genai_types.Tool(function_declarations=[tool])]
        config.automatic_function_calling = genai_types.AutomaticFunctionCallingConfig(disable=True)
    asked = {"model": c["model"], "contents": c["text"]}
    if op in ("plain", "tools"):
        generated(r, client.models.generate_content(config=config, **asked))
    elif op in ("stream", "tools_stream"):
        finished = False
        for part in client.models.generate_content_stream(config=config, **asked):
            finished = generated(r, part) or finished
        if not finished:
            raise Cut("the stream ended without finishReason")
    elif op == "embed":
        r["vectors"] = len(client.models.embed_content(config=genai_types.EmbedContentConfig(http_options=headers), **asked).embeddings)
    elif op == "count":
        answer = client.models.count_tokens(config=genai_types.CountTokensConfig(http_options=headers), **asked)
        r["usage"] = {"input": answer.total_tokens, "output": 0}
    else:
        raise ValueError(f"the genai driver has no operation {op}")


def generated(r, part):
    """Adds one part of an answer and says whether it was the last."""
    finished = False
    for candidate in part.candidates or []:
        for p in (candidate.content and candidate.content.parts) or []:
            r["text"] += p.text or ""
            if p.function_call:
                r["tool"] = {"name": p.function_call.name, "arguments": p.function_call.args}
        finished = finished or bool(candidate.finish_reason)
    u = part.usage_metadata
    if u:
        r["usage"] = {"input": u.prompt_token_count or 0, "output": u.candidates_token_count or 0}
    return finished


# --- mistralai ------------------------------------------------------------------------------------------------------


def call_mistral(c, r):
    client = mistral_client(c["base_url"], c["key"], bool(c.get("retries")))
    op, headers = c["op"], c["headers"]
    if op in ("plain", "tools"):
        answer = client.chat.complete(http_headers=headers, **chat(c, "max_tokens"))
        chat_result(r, answer.choices[0].message, answer.usage)
    elif op in ("stream", "tools_stream"):
        with client.chat.stream(http_headers=headers, **chat(c, "max_tokens")) as events:
            chat_stream(r, (e.data for e in events))
    elif op == "embed":
        answer = client.embeddings.create(model=c["model"], inputs=[c["text"], "another text"], http_headers=headers)
        r["vectors"] = len(answer.data)
        r["usage"] = {"input": answer.usage.prompt_tokens, "output": 0}
    else:
        raise ValueError(f"the mistral driver has no operation {op}")


# --- the protocol ---------------------------------------------------------------------------------------------------

CALLS = {"openai": call_openai, "anthropic": call_anthropic, "genai": call_genai, "mistral": call_mistral}


def problem(e):
    p = {"type": type(e).__name__, "status": 0, "code": "", "message": str(e)[:500]}
    if isinstance(e, openai.APIStatusError):
        p.update(type="openai." + p["type"], status=e.status_code, code=e.code or "", message=e.message)
    elif isinstance(e, openai.OpenAIError):
        p["type"] = "openai." + p["type"]
    elif isinstance(e, anthropic.APIStatusError):
        p.update(type="anthropic." + p["type"], status=e.status_code)
        if isinstance(e.body, dict):
            p["code"] = (e.body.get("error") or {}).get("type", "")
    elif isinstance(e, anthropic.AnthropicError):
        p["type"] = "anthropic." + p["type"]
    elif isinstance(e, genai_errors.APIError):
        p.update(type="genai." + p["type"], status=e.code, code=e.status or "", message=e.message or "")
    elif isinstance(e, mistral_errors.MistralError):
        p.update(type="mistral." + p["type"], status=e.status_code)
        body = arguments(e.body)
        if isinstance(body, dict):
            p.update(code=str(body.get("type", "")), message=str(body.get("message", "")))
    else:
        p["type"] = type(e).__module__.split(".")[0] + "." + p["type"]
    return p


writing = threading.Lock()


def write(r):
    with writing:
        sys.stdout.write(json.dumps(r) + "\n")
        sys.stdout.flush()


def run(c):
    """One call in a thread of its own, so that its timeout holds whatever the SDK does meanwhile."""
    began = time.monotonic()
    r = {"id": c["id"], "ok": True, "text": ""}

    def work():
        try:
            CALLS[c["sdk"]](c, r)
        except Exception as e:  # every error is a result: the test says which is the right one
            r.update(ok=False, error=problem(e))

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(c.get("timeout_s") or 30)
    result = r
    if worker.is_alive():
        result = {"id": c["id"], "ok": False, "text": "", "error": {"type": "driver timeout", "status": 0, "code": "", "message": ""}}
    result["elapsed_ms"] = int((time.monotonic() - began) * 1000)
    write(result)


def main():
    threads = []
    for line in sys.stdin:
        c = json.loads(line)
        c["text"] = c.get("text") or "Say hello."
        c["headers"] = c.get("headers") or {}
        t = threading.Thread(target=run, args=(c,))
        t.start()
        threads.append(t)
    for t in threads:
        t.join()
    sys.stdout.flush()
    os._exit(0)  # a call that was left behind must not hold the process


if __name__ == "__main__":
    main()
