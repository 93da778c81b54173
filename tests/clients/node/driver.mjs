// Drives the official Node SDKs for the tests of the gateway: one call per line of standard input, one result per line
// of standard output; ../README.md has the protocol. Calls run side by side.
//
// bin/clients/node/driver.mjs is a link to this file and node is told to keep it (--preserve-symlinks-main), so that the
// packages are found there and no node_modules lies among the sources.
import { createInterface } from 'node:readline';

const NAME = 'weather';
const ABOUT = 'The weather in a city.';
const SCHEMA = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };

/** A stream that ended without the end that its dialect promises, and without an error of the SDK's own. */
class Cut extends Error {}

const parse = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
};
const toolCall = (name, args) => ({ name, arguments: typeof args === 'string' ? parse(args) : args });
const unknown = (c) => new Error(`the ${c.sdk} driver has no operation ${c.op}`);
const streams = (c) => c.op.includes('stream');

// --- openai ----------------------------------------------------------------------------------------------------------

async function openai() {
  const { OpenAI, APIError } = await import('openai');
  return {
    async call(c, r, signal) {
      const client = new OpenAI({ baseURL: c.base_url, apiKey: c.key, defaultHeaders: c.headers });
      const options = { signal };
      switch (c.op) {
        case 'plain':
        case 'tools': {
          const answer = await client.chat.completions.create(chat(c), options);
          const message = answer.choices[0].message;
          r.text = message.content ?? '';
          for (const t of message.tool_calls ?? []) r.tool = toolCall(t.function.name, t.function.arguments);
          r.usage = { input: answer.usage.prompt_tokens, output: answer.usage.completion_tokens };
          return;
        }
        case 'stream':
        case 'stream_no_usage':
        case 'tools_stream': {
          const p = { ...chat(c), stream: true };
          if (c.op !== 'stream_no_usage') p.stream_options = { include_usage: true };
          return await chatStream(r, await client.chat.completions.create(p, options));
        }
        case 'embed': {
          const answer = await client.embeddings.create({ model: c.model, input: [c.text, 'another text'] }, options);
          r.vectors = answer.data.length;
          r.usage = { input: answer.usage.prompt_tokens, output: 0 };
          return;
        }
        case 'responses':
        case 'responses_tools':
          return responseResult(r, await client.responses.create(response(c), options));
        case 'responses_stream': {
          let text = '';
          for await (const event of await client.responses.create({ ...response(c), stream: true }, options)) {
            if (event.type === 'response.output_text.delta') text += event.delta;
            if (event.type === 'response.completed' || event.type === 'response.incomplete') responseResult(r, event.response);
          }
          r.text = text;
          if (!r.usage) throw new Cut('the stream ended without response.completed');
          return;
        }
      }
      throw unknown(c);
    },
    problem: (e) => e instanceof APIError && { type: `openai.${e.constructor.name}`, status: e.status, code: e.code ?? '', message: e.error?.message ?? e.message },
  };
}

function chat(c) {
  const p = { model: c.model, messages: [{ role: 'user', content: c.text }] };
  if (c.max_tokens) p.max_completion_tokens = c.max_tokens;
  if (c.op.startsWith('tools')) p.tools = [{ type: 'function', function: { name: NAME, description: ABOUT, parameters: SCHEMA } }];
  return p;
}

async function chatStream(r, chunks) {
  let name = '';
  let args = '';
  let finished = false;
  for await (const chunk of chunks) {
    if (chunk.usage) r.usage = { input: chunk.usage.prompt_tokens, output: chunk.usage.completion_tokens };
    for (const choice of chunk.choices) {
      r.text += choice.delta.content ?? '';
      for (const t of choice.delta.tool_calls ?? []) {
        name += t.function?.name ?? '';
        args += t.function?.arguments ?? '';
      }
      finished ||= Boolean(choice.finish_reason);
    }
  }
  if (name) r.tool = toolCall(name, args);
  if (!finished) throw new Cut('the stream ended without finish_reason');
}

function response(c) {
  const p = { model: c.model, input: c.text };
  if (c.max_tokens) p.max_output_tokens = c.max_tokens;
  if (c.op === 'responses_tools') p.tools = [{ type: 'function', name: NAME, description: ABOUT, parameters: SCHEMA, strict: false }];
  return p;
}

function responseResult(r, answer) {
  r.text = answer.output_text ?? r.text;
  for (const item of answer.output) if (item.type === 'function_call') r.tool = toolCall(item.name, item.arguments);
  r.usage = { input: answer.usage.input_tokens, output: answer.usage.output_tokens };
}

// --- @anthropic-ai/sdk -----------------------------------------------------------------------------------------------

async function anthropic() {
  const { Anthropic, APIError } = await import('@anthropic-ai/sdk');
  return {
    async call(c, r, signal) {
      const client = new Anthropic({ baseURL: c.base_url, apiKey: c.key, defaultHeaders: c.headers });
      const options = { signal };
      const messages = [{ role: 'user', content: c.text }];
      const p = { model: c.model, messages, max_tokens: c.max_tokens || 1 };
      if (c.op.startsWith('tools')) p.tools = [{ name: NAME, description: ABOUT, input_schema: SCHEMA }];
      switch (c.op) {
        case 'plain':
        case 'tools':
          return messageResult(r, await client.messages.create(p, options));
        case 'stream':
        case 'tools_stream': {
          let stopped = false;
          const stream = client.messages.stream(p, options);
          for await (const event of stream) {
            if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') r.text += event.delta.text;
            stopped ||= event.type === 'message_stop';
          }
          if (!stopped) throw new Cut('the stream ended without message_stop');
          return messageResult(r, await stream.finalMessage());
        }
        case 'count': {
          const answer = await client.messages.countTokens({ model: c.model, messages }, options);
          r.usage = { input: answer.input_tokens, output: 0 };
          return;
        }
      }
      throw unknown(c);
    },
    problem: (e) => e instanceof APIError && { type: `anthropic.${e.constructor.name}`, status: e.status, code: e.error?.error?.type ?? '', message: e.message },
  };
}

function messageResult(r, message) {
  r.text = '';
  for (const block of message.content) {
    if (block.type === 'text') r.text += block.text;
    if (block.type === 'tool_use') r.tool = toolCall(block.name, block.input);
  }
  r.usage = { input: message.usage.input_tokens, output: message.usage.output_tokens };
}

// --- @google/genai ---------------------------------------------------------------------------------------------------

async function genai() {
  const { GoogleGenAI, ApiError } = await import('@google/genai');
  return {
    async call(c, r, signal) {
      const httpOptions = { baseUrl: c.base_url, headers: c.headers };
      if (c.retries) httpOptions.retryOptions = { attempts: 3, initialDelay: 0.05, maxDelay: 0.1, jitter: 0 };
      const client = new GoogleGenAI({ apiKey: c.key, httpOptions });
      const config = { abortSignal: signal };
      if (c.max_tokens) config.maxOutputTokens = c.max_tokens;
      if (c.op.startsWith('tools')) config.tools = [{ functionDeclarations: [{ name: NAME, description: ABOUT, parametersJsonSchema: SCHEMA }] }];
      const asked = { model: c.model, contents: c.text };
      switch (c.op) {
        case 'plain':
        case 'tools':
          generated(r, await client.models.generateContent({ ...asked, config }));
          return;
        case 'stream':
        case 'tools_stream': {
          let finished = false;
          for await (const part of await client.models.generateContentStream({ ...asked, config })) finished = generated(r, part) || finished;
          if (!finished) throw new Cut('the stream ended without finishReason');
          return;
        }
        case 'embed':
          r.vectors = (await client.models.embedContent({ ...asked })).embeddings.length;
          return;
        case 'count':
          r.usage = { input: (await client.models.countTokens({ ...asked })).totalTokens, output: 0 };
          return;
      }
      throw unknown(c);
    },
    problem: (e) => {
      if (!(e instanceof ApiError)) return false;
      const inner = parse(e.message)?.error ?? {};
      return { type: 'genai.ApiError', status: e.status, code: inner.status ?? '', message: inner.message ?? e.message };
    },
  };
}

/** Adds one part of an answer and says whether it was the last. */
function generated(r, part) {
  let finished = false;
  for (const candidate of part.candidates ?? []) {
    for (const p of candidate.content?.parts ?? []) {
      r.text += p.text ?? '';
      if (p.functionCall) r.tool = toolCall(p.functionCall.name, p.functionCall.args);
    }
    finished ||= Boolean(candidate.finishReason);
  }
  const u = part.usageMetadata;
  if (u) r.usage = { input: u.promptTokenCount ?? 0, output: u.candidatesTokenCount ?? 0 };
  return finished;
}

// --- @mistralai/mistralai --------------------------------------------------------------------------------------------

async function mistral() {
  const { Mistral } = await import('@mistralai/mistralai');
  const { MistralError } = await import('@mistralai/mistralai/models/errors');
  return {
    async call(c, r, signal) {
      const retryConfig = c.retries
        ? { strategy: 'backoff', backoff: { initialInterval: 50, maxInterval: 100, exponent: 1.5, maxElapsedTime: 400 } }
        : undefined;
      const client = new Mistral({ apiKey: c.key, serverURL: c.base_url, retryConfig });
      const options = { headers: c.headers, fetchOptions: { signal } };
      const p = { model: c.model, messages: [{ role: 'user', content: c.text }] };
      if (c.max_tokens) p.maxTokens = c.max_tokens;
      if (c.op.startsWith('tools')) p.tools = [{ type: 'function', function: { name: NAME, description: ABOUT, parameters: SCHEMA } }];
      switch (c.op) {
        case 'plain':
        case 'tools': {
          const answer = await client.chat.complete(p, options);
          const message = answer.choices[0].message;
          r.text = message.content ?? '';
          for (const t of message.toolCalls ?? []) r.tool = toolCall(t.function.name, t.function.arguments);
          r.usage = { input: answer.usage.promptTokens, output: answer.usage.completionTokens };
          return;
        }
        case 'stream':
        case 'tools_stream': {
          let name = '';
          let args = '';
          let finished = false;
          for await (const { data } of await client.chat.stream(p, options)) {
            if (data.usage) r.usage = { input: data.usage.promptTokens, output: data.usage.completionTokens };
            for (const choice of data.choices) {
              r.text += choice.delta.content ?? '';
              for (const t of choice.delta.toolCalls ?? []) {
                name += t.function.name ?? '';
                args += typeof t.function.arguments === 'string' ? t.function.arguments : JSON.stringify(t.function.arguments);
              }
              finished ||= Boolean(choice.finishReason);
            }
          }
          if (name) r.tool = toolCall(name, args);
          if (!finished) throw new Cut('the stream ended without finish_reason');
          return;
        }
        case 'embed': {
          const answer = await client.embeddings.create({ model: c.model, inputs: [c.text, 'another text'] }, options);
          r.vectors = answer.data.length;
          r.usage = { input: answer.usage.promptTokens, output: 0 };
          return;
        }
      }
      throw unknown(c);
    },
    problem: (e) => {
      if (!(e instanceof MistralError)) return false;
      const body = parse(e.body) ?? {};
      return { type: `mistral.${e.constructor.name}`, status: e.statusCode, code: String(body.type ?? ''), message: String(body.message ?? e.message) };
    },
  };
}

// --- ai, with @ai-sdk/openai and @ai-sdk/openai-compatible -----------------------------------------------------------

async function vercel(compatible) {
  const { generateText, streamText, embedMany, tool, jsonSchema, APICallError, RetryError } = await import('ai');
  const { createOpenAI } = await import('@ai-sdk/openai');
  const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
  return {
    async call(c, r, signal) {
      const settings = { baseURL: c.base_url, apiKey: c.key, headers: c.headers };
      const provider = compatible ? createOpenAICompatible({ ...settings, name: 'gateway', includeUsage: true }) : createOpenAI(settings);
      const responses = c.op.startsWith('responses');
      const p = { prompt: c.text, abortSignal: signal };
      if (c.op !== 'embed') p.model = compatible ? provider.chatModel(c.model) : responses ? provider.responses(c.model) : provider.chat(c.model);
      if (c.max_tokens) p.maxOutputTokens = c.max_tokens;
      if (c.op.startsWith('tools')) p.tools = { [NAME]: tool({ description: ABOUT, inputSchema: jsonSchema(SCHEMA) }) };
      if (c.op === 'embed') {
        const model = compatible ? provider.embeddingModel(c.model) : provider.embedding(c.model);
        const answer = await embedMany({ model, values: [c.text, 'another text'], abortSignal: signal });
        r.vectors = answer.embeddings.length;
        r.usage = { input: answer.usage.tokens, output: 0 };
        return;
      }
      if (!streams(c)) {
        const answer = await generateText(p);
        r.text = answer.text;
        for (const t of answer.toolCalls) r.tool = toolCall(t.toolName, t.input);
        r.usage = { input: answer.usage.inputTokens, output: answer.usage.outputTokens };
        return;
      }
      let finished = '';
      for await (const part of streamText({ ...p, onError() {} }).fullStream) {
        if (part.type === 'error') throw part.error;
        if (part.type === 'abort') throw new Error('aborted');
        if (part.type === 'text-delta') r.text += part.text;
        if (part.type === 'tool-call') r.tool = toolCall(part.toolName, part.input);
        if (part.type === 'finish') {
          finished = part.finishReason;
          r.usage = { input: part.totalUsage.inputTokens ?? 0, output: part.totalUsage.outputTokens ?? 0 };
        }
      }
      if (!['stop', 'length', 'tool-calls'].includes(finished)) throw new Cut(`the stream ended with finishReason ${finished || 'none'}`);
    },
    problem: (e) => {
      const retried = RetryError.isInstance(e);
      const last = retried ? e.lastError : e;
      if (!APICallError.isInstance(last)) return retried && { type: 'ai.RetryError', status: 0, code: '', message: e.message };
      const inner = parse(last.responseBody)?.error ?? {};
      return { type: retried ? 'ai.RetryError' : 'ai.APICallError', status: last.statusCode ?? 0, code: String(inner.code ?? inner.type ?? ''), message: last.message };
    },
  };
}

// --- the protocol ----------------------------------------------------------------------------------------------------

const sdks = { openai, anthropic, genai, mistral, ai: () => vercel(false), ai_compatible: () => vercel(true) };
const loaded = {}; // an SDK is loaded at its first call: a run for one of them does not pay for all

async function run(c) {
  const began = Date.now();
  const r = { id: c.id, ok: true, text: '' };
  c.text ||= 'Say hello.';
  c.headers ??= {};
  const aborter = new AbortController();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => {
      reject(Object.assign(new Error('the call outlived its timeout'), { late: true }));
      aborter.abort();
    }, (c.timeout_s || 30) * 1000);
  });
  let sdk;
  try {
    sdk = await (loaded[c.sdk] ??= sdks[c.sdk]());
    const call = sdk.call(c, r, aborter.signal);
    call.catch(() => {}); // when the timeout came first nobody waits for it
    await Promise.race([call, late]);
  } catch (e) {
    r.ok = false;
    r.error = e.late
      ? { type: 'driver timeout', status: 0, code: '', message: e.message }
      : (sdk?.problem(e) || { type: e?.constructor?.name ?? typeof e, status: 0, code: e?.cause?.code ?? '', message: String(e?.message ?? e).slice(0, 500) });
    r.error.status ??= 0;
  }
  clearTimeout(timer);
  r.elapsed_ms = Date.now() - began;
  process.stdout.write(JSON.stringify(r) + '\n');
}

const running = [];
for await (const line of createInterface({ input: process.stdin })) running.push(run(JSON.parse(line)));
await Promise.all(running);
process.exit(0);
