package provider

import "github.com/tidwall/gjson"

// HTTP is the dialect of tools: any HTTP service whose calls are counted and not metered in tokens.
const HTTP = "http"

// tool: any method, path and body. Nothing in a request or an answer is read.
var tool = Dialect{
	name:     HTTP,
	keySlot:  "Authorization",
	keyWord:  "Bearer ",
	chatPath: func(string) string { return "" },
	chatBody: func(ChatRequest) any { return nil },
	usage:    func(gjson.Result) (Usage, bool) { return Usage{}, false },
	limits:   openAILimits,
}

var toolEndpoint = unread(&tool, "tool")
