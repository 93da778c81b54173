package provider

// role is what one field of a request means for its cost.
type role uint8

const (
	roleNone         role = iota
	roleModel             // the model's name
	roleAgent             // an agent at the provider, which has a model
	roleStream            // answer as a stream
	roleCap               // output cap in tokens
	roleChoices           // answers asked for: n, candidateCount
	roleBestOf            // candidates made, of which n are shown: all are billed
	roleTier              // service tier
	roleSpeed             // Anthropic's other word for a tier
	roleUser              // who asks, as the caller tells the provider
	roleMetadata          // object with user_id
	roleContinues         // names earlier turns or a stored prompt
	roleBackground        // answer later, bill later
	roleUsageOption       // object with include_usage
	roleInclude           // include_usage itself
	roleConfig            // object that holds caps and schemas of its own
	roleMessages          // list of messages
	roleSystem            // one message beside the list
	rolePrompts           // text, or a list of texts or tokens, answered one by one
	roleText              // text, or a list of it, that makes no message
	roleTools             // list of tools
	roleSchema            // JSON that the model is shown
	roleContent           // object or list with texts and media
	roleGenerate          // a whole Gemini request inside another
	roleImageSize         // what an image to be made costs
	roleImageQuality      // likewise
)

// capField is a place of the output cap: a field, or a field of an object.
type capField struct{ parent, name string }

// The fields of the requests. Google's servers take camelCase and snake_case alike. Fields that are not listed cost
// nothing; what is inside a message is not listed at all but counted as text unless it is known to be something else.
var (
	chatFields = map[string]role{
		"model": roleModel, "stream": roleStream, "max_completion_tokens": roleCap, "max_tokens": roleCap, "n": roleChoices,
		"service_tier": roleTier, "user": roleUser, "metadata": roleMetadata, "stream_options": roleUsageOption,
		"messages": roleMessages, "tools": roleTools, "functions": roleTools, "response_format": roleSchema,
	}
	completionFields = map[string]role{
		"model": roleModel, "stream": roleStream, "max_tokens": roleCap, "n": roleChoices, "best_of": roleBestOf,
		"user": roleUser, "stream_options": roleUsageOption, "prompt": rolePrompts, "suffix": roleText,
	}
	responsesFields = map[string]role{
		"model": roleModel, "stream": roleStream, "max_output_tokens": roleCap, "service_tier": roleTier, "user": roleUser,
		"metadata": roleMetadata, "previous_response_id": roleContinues, "conversation": roleContinues, "prompt": roleContinues,
		"background": roleBackground, "input": roleMessages, "instructions": roleSystem, "tools": roleTools, "text": roleSchema,
	}
	embeddingFields  = map[string]role{"model": roleModel, "user": roleUser, "input": roleText}
	moderationFields = map[string]role{"model": roleModel, "input": roleContent}
	imageFields      = map[string]role{
		"model": roleModel, "stream": roleStream, "n": roleChoices, "user": roleUser, "prompt": roleText,
		"size": roleImageSize, "quality": roleImageQuality, "image": roleContent, "image[]": roleContent, "mask": roleContent,
	}
	speechFields = map[string]role{"model": roleModel, "input": roleText, "instructions": roleText}

	messagesFields = map[string]role{
		"model": roleModel, "stream": roleStream, "max_tokens": roleCap, "service_tier": roleTier, "speed": roleSpeed,
		"metadata": roleMetadata, "messages": roleMessages, "system": roleSystem, "tools": roleTools,
		"output_config": roleSchema, "output_format": roleSchema,
	}

	generateFields = map[string]role{
		"model": roleModel, "contents": roleMessages, "systemInstruction": roleSystem, "system_instruction": roleSystem,
		"tools": roleTools, "generationConfig": roleConfig, "generation_config": roleConfig,
		"cachedContent": roleContinues, "cached_content": roleContinues,
		"generateContentRequest": roleGenerate, "generate_content_request": roleGenerate,
		"serviceTier": roleTier, "service_tier": roleTier,
	}
	embedFields        = map[string]role{"model": roleModel, "content": roleContent, "requests": roleContent}
	interactionsFields = map[string]role{
		"model": roleModel, "agent": roleAgent, "stream": roleStream, "input": roleMessages, "system_instruction": roleSystem, "systemInstruction": roleSystem,
		"tools": roleTools, "generation_config": roleConfig, "generationConfig": roleConfig, "response_format": roleSchema,
		"previous_interaction_id": roleContinues, "previousInteractionId": roleContinues, "background": roleBackground,
		"service_tier": roleTier, "serviceTier": roleTier,
	}

	mistralChatFields = map[string]role{
		"model": roleModel, "agent_id": roleAgent, "stream": roleStream, "max_tokens": roleCap, "n": roleChoices,
		"service_tier": roleTier, "metadata": roleMetadata, "messages": roleMessages, "tools": roleTools, "response_format": roleSchema,
	}
	fimFields = map[string]role{
		"model": roleModel, "stream": roleStream, "max_tokens": roleCap, "prompt": roleText, "suffix": roleText,
	}
	conversationFields = map[string]role{
		"model": roleModel, "agent_id": roleAgent, "stream": roleStream, "inputs": roleMessages, "instructions": roleSystem,
		"tools": roleTools, "completion_args": roleConfig, "metadata": roleMetadata,
	}
	ocrFields = map[string]role{
		"model": roleModel, "document": roleContent, "bbox_annotation_format": roleSchema, "document_annotation_format": roleSchema,
	}
	audioFields = map[string]role{"model": roleModel, "stream": roleStream, "prompt": roleText, "file": roleContent}

	metadataFields    = map[string]role{"user_id": roleUser}
	usageOptionFields = map[string]role{"include_usage": roleInclude}

	// configFields are the fields inside a roleConfig object at Google, completionArgFields at Mistral.
	configFields = map[string]role{
		"maxOutputTokens": roleCap, "max_output_tokens": roleCap,
		"candidateCount": roleChoices, "candidate_count": roleChoices,
		"responseSchema": roleSchema, "response_schema": roleSchema, "responseJsonSchema": roleSchema, "response_json_schema": roleSchema,
	}
	completionArgFields = map[string]role{"max_tokens": roleCap, "response_format": roleSchema}
)

// The places of the cap, by family.
var (
	chatCaps         = []capField{{"", "max_completion_tokens"}, {"", "max_tokens"}}
	olderCaps        = []capField{{"", "max_tokens"}}
	responsesCaps    = []capField{{"", "max_output_tokens"}}
	generateCaps     = []capField{{"generationConfig", "maxOutputTokens"}}
	interactionsCaps = []capField{{"generation_config", "max_output_tokens"}}
	conversationCaps = []capField{{"completion_args", "max_tokens"}}
)
