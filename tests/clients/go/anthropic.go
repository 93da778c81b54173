package main

import (
	"context"
	"errors"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

func callAnthropic(ctx context.Context, c call, r *result) error {
	opts := []option.RequestOption{option.WithBaseURL(c.BaseURL), option.WithAPIKey(c.Key)}
	for k, v := range c.Headers {
		opts = append(opts, option.WithHeader(k, v))
	}
	client := anthropic.NewClient(opts...)
	messages := []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(c.Text))}
	switch c.Op {
	case "plain", "tools":
		answer, err := client.Messages.New(ctx, message(c, messages))
		if err != nil {
			return anthropicProblem(err)
		}
		messageResult(r, answer)
		return nil
	case "stream", "tools_stream":
		stream := client.Messages.NewStreaming(ctx, message(c, messages))
		defer stream.Close()
		var all anthropic.Message
		stopped := false
		for stream.Next() {
			e := stream.Current()
			if err := all.Accumulate(e); err != nil {
				return err
			}
			stopped = stopped || e.Type == "message_stop"
		}
		messageResult(r, &all)
		if err := stream.Err(); err != nil {
			return anthropicProblem(err)
		}
		if !stopped {
			return &problem{Type: "cut stream", Message: "the stream ended without message_stop"}
		}
		return nil
	case "count":
		answer, err := client.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: c.Model, Messages: messages})
		if err != nil {
			return anthropicProblem(err)
		}
		r.Usage = &usage{Input: answer.InputTokens}
		return nil
	}
	return unknownOp(c)
}

func message(c call, messages []anthropic.MessageParam) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{Model: c.Model, Messages: messages, MaxTokens: max(c.MaxTokens, 1)}
	if strings.HasPrefix(c.Op, "tools") {
		schema := toolProperties()
		p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
			Name: toolName, Description: anthropic.String(toolText),
			InputSchema: anthropic.ToolInputSchemaParam{Properties: schema["properties"], Required: []string{"city"}},
		}}}
	}
	return p
}

func messageResult(r *result, m *anthropic.Message) {
	for _, block := range m.Content {
		switch block.Type {
		case "text":
			r.Text += block.Text
		case "tool_use":
			r.Tool = &tool{block.Name, arguments(string(block.Input))}
		}
	}
	r.Usage = &usage{m.Usage.InputTokens, m.Usage.OutputTokens}
}

func anthropicProblem(err error) error {
	var e *anthropic.Error
	if !errors.As(err, &e) {
		return err
	}
	return &problem{Type: "*anthropic.Error " + string(e.Type()), Status: e.StatusCode, Code: string(e.ErrorCode()), Message: e.Message}
}
