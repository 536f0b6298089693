package agents

import (
	"math/rand/v2"
	"time"

	"github.com/seed8d1e2389/resilience"
)

// The parameters of agents.
const (
	agentsOfARun     = 4
	tasksOfAnAgent   = 10
	minGap, maxGap   = 30 * time.Second, 90 * time.Second // between the tasks that an agent is given
	patience         = 10 * time.Minute                   // of the user, with a task
	minTurn, maxTurn = time.Second, 3 * time.Second       // that the model takes before each call
	maxTries         = 10                                 // failures of one step, after which any agent gives up
)

// An agent decides what to do about a failed call. Each kind of agent is a function.
type agent struct {
	name    string
	decide  func(failure) decision
	resends bool // whether its client sends a request again whose response has broken off
}

const obeys = "obeys the guidance"

var agents = []agent{
	{"reads the text", readText, false},
	{obeys, obey, false},
	{"checks its writes", checkWrites, false},
	{"works on meanwhile", workOnMeanwhile, false},
	{"retries at once", retryAtOnce, false},
	{"gives up", giveUpAtOnce, false},
	{"obeys, re-sends", obey, true},
}

// A failure is what an agent knows of a call that failed.
type failure struct {
	step     step
	tries    int       // how often this step has failed, with this failure
	text     string    // what a host shows to the model
	guidance *guidance // from the _meta of the result; nil if there is none
}

// Guidance is what an agent may use of a resilience.Error.
type guidance struct {
	Code       resilience.Code `json:"code"`
	Suggestion string          `json:"suggestion"`
	Retryable  bool            `json:"retryable"`
	RetryAfter float64         `json:"retryAfter"` // seconds
}

// A decision is what an agent does next.
type decision struct {
	do        action
	after     time.Duration // of the answer
	meanwhile bool          // whether the agent goes on with other tasks until then
	avoid     bool          // whether it does, and calls the tool for none of them
}

type action int

const (
	again  action = iota // make the call again
	check                // look whether the write is there, and write only if it isn't
	giveUp               // tell the user that the task has failed
)

// A step is a step of a task: read a record, decide what to write, which is thinking, write it, and check that it is
// there.
type step int

const (
	reading step = iota
	writing
	checking
	steps
)

// A task is given to an agent at a time.
type task struct {
	id     string
	given  time.Duration
	append bool // whether it writes to the ledger, or else to the board

	step  step
	tries [steps]int
	wrote bool          // whether the agent has tried to
	after time.Duration // when the agent goes on with the task
	end   ending
	ended time.Duration
}

type ending int

const (
	pending   ending = iota
	completed        // the agent has seen what it wrote
	abandoned        // the agent gave up
	expired          // the user's patience ended
)

// tool returns the tool of the task's current step.
func (t *task) tool() tool {
	switch {
	case t.step == reading:
		return readRecord
	case t.step == writing && t.append:
		return addEntry
	case t.step == writing:
		return setStatus
	case t.append:
		return countEntries
	default:
		return getStatus
	}
}

// succeeded goes on after a call that succeeded, with the text that it returned.
func (t *task) succeeded(text string) (done bool) {
	switch {
	case t.step == checking && text == "0":
		t.step = writing
	case t.step == checking:
		return true
	default:
		t.step++
	}
	return false
}

// turn draws how long the model takes before a call.
func turn(rng *rand.Rand) time.Duration { return between(rng, minTurn, maxTurn) }
