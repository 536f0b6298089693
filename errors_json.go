package resilience

import (
	"encoding/json"
	"math"
	"time"
)

// An errorJSON is what an agent reads of an Error.
type errorJSON struct {
	Code       Code           `json:"code"`
	Tool       string         `json:"tool,omitempty"`
	Message    string         `json:"message"`
	Suggestion string         `json:"suggestion,omitempty"`
	Retryable  bool           `json:"retryable"`
	RetryAfter retrySeconds   `json:"retryAfter,omitempty"`
	Attempts   int            `json:"attempts,omitempty"`
	LastCode   Code           `json:"lastCode,omitempty"`
	Details    map[string]any `json:"details,omitempty"`
}

// retrySeconds are a time that other programs may write as any number.
type retrySeconds int64

// UnmarshalJSON rounds up. Times that aren't positive, or too long for a time.Duration, become 0.
func (s *retrySeconds) UnmarshalJSON(b []byte) error {
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}

	*s = 0
	f, _ := n.Float64() // infinite if it is out of range
	if f > 0 && f <= float64(never/time.Second) {
		*s = retrySeconds(math.Ceil(f))
	}
	return nil
}

// MarshalJSON returns what an agent reads: code, tool, message, suggestion, retryable,
// retryAfter in whole seconds (rounded up), attempts, lastCode and details, of which those that aren't
// known are left out. The cause is part of it only as far as Details contains it. Details that
// can't be marshaled are left out, so that the rest isn't lost.
func (e Error) MarshalJSON() ([]byte, error) {
	out := errorJSON{
		e.Code, e.Tool, e.Message, e.Suggestion, e.Retryable, retrySeconds(wholeSeconds(e.RetryAfter)),
		e.Attempts, e.LastCode, e.Details,
	}
	if b, err := marshal(out); err == nil {
		return b, nil
	}

	out.Details = nil
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON returns, for a client that wants to act on an error. The
// cause isn't part of it. A retryAfter is rounded up to whole seconds. One that isn't positive, or too
// large for a time.Duration, isn't known. The JSON null changes nothing.
func (e *Error) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var in errorJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}

	*e = Error{
		Code:       in.Code,
		Tool:       in.Tool,
		Message:    in.Message,
		Suggestion: in.Suggestion,
		Retryable:  in.Retryable,
		RetryAfter: time.Duration(in.RetryAfter) * time.Second,
		Attempts:   in.Attempts,
		LastCode:   in.LastCode,
		Details:    in.Details,
	}
	return nil
}
