// Package backends shows, for clients of common backends, how a guarded call learns whose fault a failure
// was: that of the backend, which the breaker counts, or a mistake, which it doesn't. Copy what you need.
//
// All of them need the context of the call, or one derived from it, and report what the backend has said.
// They report nothing of failures that never reached it, such as an argument that can't be encoded.
package backends
