package main

// exceptions are the tests whose verdict may differ, with the reason. They are those that the docs of the
// adapters name under "What a client receives".
var exceptions = map[string]string{
	"github.com/mark3labs/mcp-go/server TestMCPServer_MiddlewarePanicRecovery/tool_handler_panic_with_recovery_middleware": noPanic,
	"github.com/mark3labs/mcp-go/server TestMCPServer_WithRecover":                                                         noPanic,
}

const noPanic = "it compares what WithRecovery makes of a panic, which the guard has recovered already"
