// Package agents measures whether a guarded MCP server makes an AI agent better off.
//
//	make agents
//
// lets agents work in 200 worlds, and each world with each kind of agent (agent_*.go) and each kind of server
// (servers.go). A world (world.go) has three backends, which become slow, hang, die, limit rates or lose replies,
// and come back (outage.go). The agents' tasks are to read a record, to decide what to write, to write it, and to
// check that it is there (agent.go). What becomes of them (run.go, result.go) is a fact of the world: writes that are
// there twice, for example, or not at all.
//
// Client, server, adapter and stacks are real code, which is connected by the in-memory transport of the official SDK.
// Agents, backends and network are models. Time is that of a testing/synctest bubble, in which computing takes no
// time, so each run is a test; and nothing is left to chance but the times between Probes, so a seed of the other
// servers gives the same result again. For that, no server's retries have jitter.
package agents
