package main

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"google.golang.org/genai"
)

func callGemini(ctx context.Context, c call, r *result) error {
	options := genai.HTTPOptions{BaseURL: c.BaseURL, Headers: http.Header{}}
	for k, v := range c.Headers {
		options.Headers.Set(k, v)
	}
	if c.Retries {
		options.RetryOptions = &genai.HTTPRetryOptions{
			Attempts: genai.Ptr(int32(3)), InitialDelay: genai.Ptr(0.05), MaxDelay: genai.Ptr(0.1), Jitter: genai.Ptr(0.0),
		}
	}
	client, err := genai.NewClient(ctx, &genai.ClientConfig{APIKey: c.Key, Backend: genai.BackendGeminiAPI, HTTPOptions: options})
	if err != nil {
		return err
	}
	config := &genai.GenerateContentConfig{MaxOutputTokens: int32(c.MaxTokens)}
	if strings.HasPrefix(c.Op, "tools") {
		config.Tools = []*genai.Tool{{FunctionDeclarations: []*genai.FunctionDeclaration{
			{Name: toolName, Description: toolText, ParametersJsonSchema: toolProperties()},
		}}}
	}
	switch c.Op {
	case "plain", "tools":
		answer, err := client.Models.GenerateContent(ctx, c.Model, genai.Text(c.Text), config)
		if err != nil {
			return geminiProblem(err)
		}
		generated(r, answer)
		return nil
	case "stream", "tools_stream":
		finished := false
		for part, err := range client.Models.GenerateContentStream(ctx, c.Model, genai.Text(c.Text), config) {
			if err != nil {
				return geminiProblem(err)
			}
			generated(r, part)
			finished = finished || len(part.Candidates) > 0 && part.Candidates[0].FinishReason != ""
		}
		if !finished {
			return &problem{Type: "cut stream", Message: "the stream ended without finishReason"}
		}
		return nil
	case "embed":
		answer, err := client.Models.EmbedContent(ctx, c.Model, genai.Text(c.Text), nil)
		if err != nil {
			return geminiProblem(err)
		}
		r.Vectors = len(answer.Embeddings)
		return nil
	case "count":
		answer, err := client.Models.CountTokens(ctx, c.Model, genai.Text(c.Text), nil)
		if err != nil {
			return geminiProblem(err)
		}
		r.Usage = &usage{Input: int64(answer.TotalTokens)}
		return nil
	}
	return unknownOp(c)
}

// generated adds one part of an answer: text grows, usage is that of the newest part that has it.
func generated(r *result, part *genai.GenerateContentResponse) {
	for _, candidate := range part.Candidates {
		if candidate.Content == nil {
			continue
		}
		for _, p := range candidate.Content.Parts {
			r.Text += p.Text
			if p.FunctionCall != nil {
				r.Tool = &tool{p.FunctionCall.Name, p.FunctionCall.Args}
			}
		}
	}
	if u := part.UsageMetadata; u != nil {
		r.Usage = &usage{int64(u.PromptTokenCount), int64(u.CandidatesTokenCount)}
	}
}

func geminiProblem(err error) error {
	var e genai.APIError
	if !errors.As(err, &e) {
		return err
	}
	return &problem{Type: "genai.APIError", Status: e.Code, Code: e.Status, Message: e.Message}
}
