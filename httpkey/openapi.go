package httpkey

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/retrysafe/retrysafe/internal/keysyntax"
)

// OpenAPI returns an OpenAPI 3.1 fragment, as JSON, that describes this guard: its
// header, its refusals and how long answers are kept. Merge its components into the
// API's own description.
func (g *Guard) OpenAPI() ([]byte, error) {
	schema, media := problemSchema(), "application/problem+json"
	if g.o.Profile.Envelope == StripeJSON {
		schema, media = stripeSchema(), "application/json"
	}
	responses := map[string]any{}
	for _, p := range problems {
		status := p.status
		switch {
		case p == keyReused:
			status = g.o.Profile.Mismatch
		case p == inFlight && g.accepts():
			p = stillRunning
			status = p.status
		}
		headers := map[string]any{"Link": ref("headers", "ProblemLink")}
		if p.retryable {
			headers["Retry-After"] = ref("headers", "RetryAfter")
		}
		response := map[string]any{
			"description":        fmt.Sprintf("%d. %s. %s", status, p.title, p.detail),
			"headers":            headers,
			"content":            map[string]any{media: map[string]any{"schema": ref("schemas", "IdempotencyProblem")}},
			"x-status":           status,
			"x-retryable":        p.retryable,
			"x-safe-new-key":     p.safeNewKey,
			"x-problem-type-url": g.page(p.code),
		}
		if p == responseNotStored {
			response["description"] = "The status of the first answer. " + p.title + ". " + p.detail
			delete(response, "x-status")
		}
		responses[p.code] = response
	}
	parameters := map[string]any{"IdempotencyKey": map[string]any{
		"name": g.o.Header, "in": "header", "required": !g.o.Optional,
		"description": "Identifies one operation: a new random value (such as a UUID) for each, the same value on each retry of it. " +
			"The first request runs; a retry gets its answer byte for byte. Answers are kept for " + g.policy.Retention.String() +
			" after they were given; " + expiresHeader + " says until when.",
		"schema":  map[string]any{"type": "string", "minLength": 1, "maxLength": keysyntax.MaxLength},
		"example": exampleKey(g.o.Profile),
	}}
	if g.o.FirstSent || g.o.RequireFirstSent {
		parameters["IdempotencyFirstSent"] = map[string]any{
			"name": firstSentHeader, "in": "header", "required": g.o.RequireFirstSent && !g.o.Optional,
			"description": "When the first attempt of this request was sent, as an HTTP date, the same on each retry of it. " +
				"A request that was first sent before answers are forgotten is refused instead of run again.",
			"schema":  map[string]any{"type": "string"},
			"example": "Sun, 01 Mar 2026 12:00:00 GMT",
		}
	}
	fragment := map[string]any{
		"components": map[string]any{
			"parameters": parameters,
			"headers": map[string]any{
				"IdempotencyExpires": header("When the answer under this key is forgotten, as an HTTP date."),
				"IdempotentReplayed": header("\"true\" if this is the stored answer of an earlier request."),
				"RetryAfter":         header("Seconds after which the same request with the same key may be sent again."),
				"ProblemLink":        header("A page that explains the problem, rel=\"describedby\"."),
			},
			"schemas":   map[string]any{"IdempotencyProblem": schema},
			"responses": responses,
		},
		"x-idempotency": map[string]any{
			"profile": g.o.Profile.Name, "methods": g.o.Methods, "required": !g.o.Optional,
			"retention-seconds": int64(g.policy.Retention.Seconds()), "effects": g.policy.Effects.String(),
			"max-request-bytes": strconv.FormatInt(g.o.MaxRequest, 10), "async": g.o.Async,
		},
	}
	return json.MarshalIndent(fragment, "", "  ")
}

func ref(kind, name string) map[string]any {
	return map[string]any{"$ref": "#/components/" + kind + "/" + name}
}

func header(description string) map[string]any {
	return map[string]any{"description": description, "schema": map[string]any{"type": "string"}}
}

func exampleKey(p *Profile) string {
	const key = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	if p.Opaque {
		return key
	}
	return `"` + key + `"`
}

func problemSchema() map[string]any {
	text, yes := map[string]any{"type": "string"}, map[string]any{"type": "boolean"}
	return map[string]any{
		"type":     "object",
		"required": []string{"type", "title", "status", "code", "retryable", "safe_new_key"},
		"properties": map[string]any{
			"type": map[string]any{"type": "string", "format": "uri"}, "title": text, "detail": text,
			"status": map[string]any{"type": "integer"}, "code": text, "retryable": yes, "safe_new_key": yes,
		},
	}
}

func stripeSchema() map[string]any {
	text := map[string]any{"type": "string"}
	return map[string]any{
		"type": "object", "required": []string{"error"},
		"properties": map[string]any{"error": map[string]any{
			"type": "object", "required": []string{"type", "message"},
			"properties": map[string]any{"type": text, "code": text, "message": text, "doc_url": text},
		}},
	}
}
