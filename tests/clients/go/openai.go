package main

import (
	"context"
	"errors"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

func callOpenAI(ctx context.Context, c call, r *result) error {
	opts := []option.RequestOption{option.WithBaseURL(c.BaseURL), option.WithAPIKey(c.Key)}
	for k, v := range c.Headers {
		opts = append(opts, option.WithHeader(k, v))
	}
	client := openai.NewClient(opts...)
	switch c.Op {
	case "plain", "tools":
		answer, err := client.Chat.Completions.New(ctx, chat(c))
		if err != nil {
			return openAIProblem(err)
		}
		chatResult(r, answer.Choices, answer.Usage)
		return nil
	case "stream", "stream_no_usage", "tools_stream":
		p := chat(c)
		if c.Op != "stream_no_usage" {
			p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
		}
		stream := client.Chat.Completions.NewStreaming(ctx, p)
		defer stream.Close()
		var all openai.ChatCompletionAccumulator
		for stream.Next() {
			if !all.AddChunk(stream.Current()) {
				return errors.New("a chunk did not fit what came before it")
			}
		}
		chatResult(r, all.Choices, all.Usage)
		return openAIProblem(stream.Err())
	case "embed":
		answer, err := client.Embeddings.New(ctx, openai.EmbeddingNewParams{
			Model: c.Model, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{c.Text, "another text"}},
		})
		if err != nil {
			return openAIProblem(err)
		}
		r.Vectors, r.Usage = len(answer.Data), &usage{Input: answer.Usage.PromptTokens}
		return nil
	case "responses", "responses_tools":
		answer, err := client.Responses.New(ctx, response(c))
		if err != nil {
			return openAIProblem(err)
		}
		responseResult(r, answer)
		return nil
	case "responses_stream":
		stream := client.Responses.NewStreaming(ctx, response(c))
		defer stream.Close()
		var text strings.Builder
		for stream.Next() {
			switch e := stream.Current(); e.Type {
			case "response.output_text.delta":
				text.WriteString(e.Delta)
			case "response.completed", "response.incomplete":
				responseResult(r, &e.Response)
			}
		}
		r.Text = text.String()
		if err := stream.Err(); err != nil {
			return openAIProblem(err)
		}
		if r.Usage == nil {
			return &problem{Type: "cut stream", Message: "the stream ended without response.completed"}
		}
		return nil
	}
	return unknownOp(c)
}

func chat(c call) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{
		Model:    c.Model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(c.Text)},
	}
	if c.MaxTokens > 0 {
		p.MaxCompletionTokens = openai.Int(c.MaxTokens)
	}
	if strings.HasPrefix(c.Op, "tools") {
		p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
			Name: toolName, Description: openai.String(toolText), Parameters: toolProperties(),
		})}
	}
	return p
}

func chatResult(r *result, choices []openai.ChatCompletionChoice, u openai.CompletionUsage) {
	for _, choice := range choices {
		r.Text += choice.Message.Content
		for _, t := range choice.Message.ToolCalls {
			r.Tool = &tool{t.Function.Name, arguments(t.Function.Arguments)}
		}
	}
	if u.TotalTokens > 0 {
		r.Usage = &usage{u.PromptTokens, u.CompletionTokens}
	}
}

func response(c call) responses.ResponseNewParams {
	p := responses.ResponseNewParams{Model: c.Model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(c.Text)}}
	if c.MaxTokens > 0 {
		p.MaxOutputTokens = openai.Int(c.MaxTokens)
	}
	if c.Op == "responses_tools" {
		p.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction(toolName, toolProperties(), false)}
	}
	return p
}

func responseResult(r *result, answer *responses.Response) {
	r.Text = answer.OutputText()
	for _, item := range answer.Output {
		if item.Type == "function_call" {
			call := item.AsFunctionCall()
			r.Tool = &tool{call.Name, arguments(call.Arguments)}
		}
	}
	r.Usage = &usage{answer.Usage.InputTokens, answer.Usage.OutputTokens}
}

func openAIProblem(err error) error {
	var e *openai.Error
	if !errors.As(err, &e) {
		return err
	}
	return &problem{Type: "*openai.Error " + e.Type, Status: e.StatusCode, Code: e.Code, Message: e.Message}
}
