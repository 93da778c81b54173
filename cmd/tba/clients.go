package main

// clients are the programs that tba connect knows. What differs and bites: the SDKs of OpenAI want the version (/v1) in the base URL and
// call /v1/..., those of Anthropic, Google and Mistral add it themselves; the provider packages of ai want it again.
// Base URL of the OpenAI SDKs is /v1, where a model may be a ladder or any rung that speaks the dialect; /openai/v1 is pinned to OpenAI.
var clients = []client{
	{name: "openai-python", aliases: []string{"openai"}, path: "/v1", baseVar: "OPENAI_BASE_URL", keyVar: "OPENAI_API_KEY", text: openaiShell + `# or in code: OpenAI(base_url="{base}", api_key=os.environ.get("TBA_KEY", "tba"))
`},
	{name: "openai-node", aliases: []string{"openai-js", "openai-ts"}, path: "/v1", baseVar: "OPENAI_BASE_URL", keyVar: "OPENAI_API_KEY", text: openaiShell + `# or in code: new OpenAI({ baseURL: "{base}", apiKey: process.env.TBA_KEY ?? "tba" })
`},
	{name: "openai-go", path: "/v1", baseVar: "OPENAI_BASE_URL", keyVar: "OPENAI_API_KEY", text: openaiShell + `# or in code: openai.NewClient(option.WithBaseURL("{base}"), option.WithAPIKey(cmp.Or(os.Getenv("TBA_KEY"), "tba")))
`},
	{name: "anthropic-python", aliases: []string{"anthropic"}, path: "/anthropic", baseVar: "ANTHROPIC_BASE_URL", keyVar: "ANTHROPIC_API_KEY", text: anthropicShell + `# or in code: Anthropic(base_url="{base}", api_key=os.environ.get("TBA_KEY", "tba"))
`},
	{name: "anthropic-node", aliases: []string{"anthropic-js", "anthropic-ts"}, path: "/anthropic", baseVar: "ANTHROPIC_BASE_URL", keyVar: "ANTHROPIC_API_KEY", text: anthropicShell + `# or in code: new Anthropic({ baseURL: "{base}", apiKey: process.env.TBA_KEY ?? "tba" })
`},
	{name: "anthropic-go", path: "/anthropic", baseVar: "ANTHROPIC_BASE_URL", keyVar: "ANTHROPIC_API_KEY", text: anthropicShell + `# or in code: anthropic.NewClient(option.WithBaseURL("{base}"), option.WithAPIKey(cmp.Or(os.Getenv("TBA_KEY"), "tba")))
`},
	{name: "genai-python", aliases: []string{"genai", "gemini", "google-genai"}, path: "/gemini", baseVar: "GOOGLE_GEMINI_BASE_URL", keyVar: "GEMINI_API_KEY", text: geminiShell + `# or in code: genai.Client(api_key=os.environ.get("TBA_KEY", "tba"), http_options={"base_url": "{base}"})
`},
	{name: "genai-node", aliases: []string{"genai-js", "genai-ts"}, path: "/gemini", baseVar: "GOOGLE_GEMINI_BASE_URL", keyVar: "GEMINI_API_KEY", text: geminiShell + `# or in code: new GoogleGenAI({ apiKey: process.env.TBA_KEY ?? "tba", httpOptions: { baseUrl: "{base}" } })
`},
	{name: "genai-go", path: "/gemini", baseVar: "GOOGLE_GEMINI_BASE_URL", keyVar: "GEMINI_API_KEY", text: geminiShell + `# or in code: genai.NewClient(ctx, &genai.ClientConfig{Backend: genai.BackendGeminiAPI, APIKey: cmp.Or(os.Getenv("TBA_KEY"), "tba"), HTTPOptions: genai.HTTPOptions{BaseURL: "{base}"}})
`},
	{name: "mistral-python", aliases: []string{"mistral", "mistralai"}, path: "/mistral", text: `# Mistral's SDK reads no base URL from the environment.
import os

from mistralai.client import Mistral

client = Mistral(server_url="{base}", api_key=os.environ.get("TBA_KEY", "tba"))
answer = client.chat.complete(model="mistral-small-2603", max_tokens=64, messages=[{"role": "user", "content": "Say hello."}])
print(answer.choices[0].message.content)
`},
	{name: "mistral-node", aliases: []string{"mistral-js", "mistral-ts"}, path: "/mistral", text: `// Mistral's SDK reads no base URL from the environment.
import { Mistral } from "@mistralai/mistralai";

const client = new Mistral({ serverURL: "{base}", apiKey: process.env.TBA_KEY ?? "tba" });
const answer = await client.chat.complete({ model: "mistral-small-2603", maxTokens: 64, messages: [{ role: "user", content: "Say hello." }] });
console.log(answer.choices[0].message.content);
`},
	{name: "langchain", path: "/v1", text: `import os

from langchain_openai import ChatOpenAI

# The other chat models take the base URL that their own API has:
#   ChatAnthropic(base_url="{root}/anthropic"), ChatMistralAI(endpoint="{root}/mistral/v1")
model = ChatOpenAI(model="gpt-5.4-mini", base_url="{base}", api_key=os.environ.get("TBA_KEY", "tba"), max_tokens=64)
print(model.invoke("Say hello.").content)
`},
	{name: "ai", aliases: []string{"ai-sdk", "vercel", "vercel-ai"}, path: "/v1", text: `import { createOpenAI } from "@ai-sdk/openai";
import { generateText } from "ai";

// The other providers take the version of the API in their base URL too:
//   createAnthropic({ baseURL: "{root}/anthropic/v1" }), createGoogleGenerativeAI({ baseURL: "{root}/gemini/v1beta" }),
//   createMistral({ baseURL: "{root}/mistral/v1" })
const openai = createOpenAI({ baseURL: "{base}", apiKey: process.env.TBA_KEY ?? "tba" });
const { text } = await generateText({ model: openai.chat("gpt-5.4-mini"), maxOutputTokens: 64, prompt: "Say hello." });
console.log(text);
`},
	{name: "claude-code", aliases: []string{"claude"}, path: "/anthropic", baseVar: "ANTHROPIC_BASE_URL", keyVar: "ANTHROPIC_AUTH_TOKEN", text: `export ANTHROPIC_BASE_URL={base}
export ANTHROPIC_AUTH_TOKEN={shell}
unset ANTHROPIC_API_KEY
# who calls, for budgets: export ANTHROPIC_CUSTOM_HEADERS='x-tba-agent: my-agent'
`},
	{name: "codex", path: "/v1", keyVar: "TBA_KEY", text: `# Put this into ~/.codex/config.toml, and before codex: export TBA_KEY={shell}
model_provider = "tba"

[model_providers.tba]
name = "Token Budget Arbiter"
base_url = "{base}"
env_key = "TBA_KEY"
wire_api = "responses"
`},
	{name: "curl", path: "/v1", text: `curl -s {base}/chat/completions -H 'content-type: application/json' -H "authorization: Bearer ${TBA_KEY:-tba}" -d '{"model":"gpt-5.4-mini","max_completion_tokens":64,"messages":[{"role":"user","content":"Say hello."}]}'
`},
}

const (
	openaiShell = `export OPENAI_BASE_URL={base}
export OPENAI_API_KEY={shell}
# who calls, for budgets: export OPENAI_CUSTOM_HEADERS='x-tba-agent: my-agent'
`
	anthropicShell = `export ANTHROPIC_BASE_URL={base}
export ANTHROPIC_API_KEY={shell}
# who calls, for budgets: export ANTHROPIC_CUSTOM_HEADERS='x-tba-agent: my-agent'
`
	geminiShell = `export GOOGLE_GEMINI_BASE_URL={base}
export GEMINI_API_KEY={shell}
unset GOOGLE_API_KEY # it would come first
`
)
