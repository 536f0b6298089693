package main

// exceptions are the tests whose verdict may differ, with the reason. They are those that the docs of the
// adapters name under "What a client receives".
var exceptions = map[string]string{
	mcpgo + "TestMCPServer_MiddlewarePanicRecovery/tool_handler_panic_with_recovery_middleware": noPanic,
	mcpgo + "TestMCPServer_WithRecover":                            noPanic,
	mcpgo + "TestSSEServer_DeliversResponseDespiteFullQueue/panic": noPanic,
	mcpgo + "TestSSEServer_MessageHandlerPanicRecovery":            noPanic,
	mcpgo + "TestStdioServer_SynchronousToolCallPanicRecovery":     noPanic,
	mcpgo + "TestStdioServer_ToolCallWorkerPanicRecovery":          noPanic,

	mcpgo + "TestCallToolNilResultIsAnError":                           noResult,
	mcpgo + "TestCallToolNilResultOnBridgedRetryIsAnError":             noResult,
	mcpgo + "TestTaskNilResultFailsTheTask/regular_tool_run_as_a_task": noResult,
}

const (
	mcpgo = "github.com/mark3labs/mcp-go/server "

	noPanic  = "it compares what the SDK makes of a panic, which the guard has recovered already"
	noResult = "it compares what the SDK makes of a handler that returns neither a result nor an error"
)
